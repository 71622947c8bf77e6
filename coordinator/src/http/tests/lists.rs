//! Filters, orders and short views of the list of steps.

use super::*;

pub(super) fn submit_batch(harness: &Harness, ids: impl Iterator<Item = String>, label: &str) {
    let steps: Vec<Value> = ids
        .map(|id| json!({ "id": id, "name": format!("{id}-name"), "command": ["true"], "labels": { "team": label } }))
        .collect();
    let (status, _) = harness.post("/v1/steps:batch", &json!({ "steps": steps }).to_string());
    assert_eq!(status, 200);
}

/// The items of all pages of a list.
fn all_pages(harness: &Harness, query: &str) -> Vec<Value> {
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = harness.get(&format!("/v1/steps?{query}{cursor}"));
        assert_eq!(status, 200, "{page}");
        items.extend_from_slice(page["items"].as_array().unwrap());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}

#[test]
fn lists_are_filtered_by_name_id_and_time() {
    let harness = Harness::start();
    submit_batch(
        &harness,
        ["t1", "t2", "u1", "u2"].map(str::to_owned).into_iter(),
        "x",
    );
    harness.post("/v1/steps/t1:cancel", "");
    for (query, expected) in [
        ("name=t*", vec!["t1", "t2"]),
        ("name=t1,u?-name", vec!["t1", "u1", "u2"]),
        ("id=u2,t2,gone", vec!["t2", "u2"]),
        ("id=u2,t2&name=u*", vec!["u2"]),
        ("since=0s", vec!["t2", "u1", "u2"]),
        ("since=1h", vec!["t1", "t2", "u1", "u2"]),
        ("since=2026-01-01T00:00:00Z&until=1d", vec![]),
        ("submitted_by=alice", vec![]),
    ] {
        let (status, page) = harness.get(&format!("/v1/steps?{query}"));
        assert_eq!(status, 200, "{page}");
        assert_eq!(ids(&page), expected, "{query}");
    }
    let (_, page) = harness.get("/v1/steps?id=u2,t2&limit=1");
    assert_eq!(ids(&page), ["t2"]);
    let rest = format!(
        "/v1/steps?id=u2,t2&limit=1&cursor={}",
        page["next_cursor"].as_str().unwrap()
    );
    assert_eq!(ids(&harness.get(&rest).1), ["u2"]);
    for query in [
        "name=",
        "id=a%20b",
        "since=soon",
        "until=1",
        "submitted_by=a%20b",
    ] {
        let refused = harness.get(&format!("/v1/steps?{query}"));
        assert_eq!(code(refused, 400), "invalid_parameter", "{query}");
    }
}

/// An answer for all steps of a kind holds for each of them.
#[test]
fn steps_that_are_alike_differ_where_they_do() {
    let harness = Harness::start();
    let policy = |pool: &str, priority: u32| {
        let path = format!("/v1/pools/{pool}/policies/team");
        let (status, answer) = harness.put(&path, &format!(r#"{{"priority":{priority}}}"#));
        assert_eq!(status, 200, "{answer}");
    };
    let submit = |id: &str, more: Value| {
        let mut body =
            json!({ "id": id, "command": ["true"], "subject": "team", "allow_pending": true });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let (status, answer) = harness.post("/v1/steps", &body.to_string());
        assert_eq!(status, 201, "{answer}");
    };
    policy("default", 1);
    submit("early", json!({}));
    // A pool that is preferred by those who were submitted after it was made.
    harness.put("/v1/pools/new", "{}");
    policy("new", 2);
    submit("late", json!({}));
    submit("vision", json!({ "labels": { "team": "vision" } }));
    submit("named", json!({ "pool": "default" }));
    submit("held", json!({}));
    submit("gone", json!({}));
    submit("other", json!({ "labels": { "team": "vision" } }));
    harness.post("/v1/steps/held:suspend", "");
    harness.post("/v1/steps/gone:cancel", "");
    for (query, expected) in [
        ("pool=default", "early named"),
        ("pool=new", "late vision held other"),
        ("labels=team=vision", "vision other"),
        ("labels=!team&pool=new", "late held"),
        ("state=queued&pool=default", "early named"),
        ("sort=pool", "early named late vision held other gone"),
    ] {
        let (_, page) = harness.get(&format!("/v1/steps?{query}"));
        assert_eq!(ids(&page).join(" "), expected, "{query}");
        for step in page["items"].as_array().unwrap() {
            let id = step["id"].as_str().unwrap();
            let pool = &harness.get(&format!("/v1/steps/{id}")).1["pool"];
            assert_eq!(step["pool"], *pool, "{query}: {id}");
        }
    }
}

/// Far more steps than a page has: the first of them are found among all, page by page.
#[test]
fn pages_of_many_sorted_steps_are_the_sorted_list() {
    let harness = Harness::start();
    let mut all: Vec<String> = (0..100).map(|n| format!("s{:02}", n * 37 % 100)).collect();
    submit_batch(&harness, all.iter().cloned(), "x");
    all.sort();
    for (sort, reversed) in [("name", false), ("-name", true)] {
        let items = all_pages(&harness, &format!("sort={sort}&limit=3&fields=id"));
        let mut found: Vec<&str> = items.iter().map(|it| it["id"].as_str().unwrap()).collect();
        if reversed {
            found.reverse();
        }
        assert_eq!(found, all, "{sort}");
    }
}

#[test]
fn lists_are_sorted_paged_and_shortened() {
    let harness = Harness::start();
    for (id, name, priority) in [("a", "x", 1), ("b", "z", 3), ("c", "y", 2), ("d", "x", 0)] {
        let body = json!({ "id": id, "name": name, "priority": priority, "command": ["true"] });
        assert_eq!(harness.post("/v1/steps", &body.to_string()).0, 201);
    }
    harness.post("/v1/steps/c:cancel", "");
    for (sort, expected) in [
        ("submitted", "a b c d"),
        ("-submitted", "d c b a"),
        ("name", "a d c b"),
        ("-name", "b c a d"),
        ("priority", "d a c b"),
        ("-priority", "b c a d"),
        ("-state", "c a b d"),
        // Those that have not ended come last in both directions.
        ("ended", "c a b d"),
        ("-ended", "c a b d"),
        // A step that never ran and named no pool has none.
        ("pool", "a b d c"),
    ] {
        let items = all_pages(&harness, &format!("sort={sort}&limit=3&fields=id,state"));
        let fields = items.iter().map(|it| it.as_object().unwrap().len());
        assert!(fields.into_iter().all(|fields| fields == 2), "{items:?}");
        let found: Vec<&str> = items.iter().map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!(found.join(" "), expected, "{sort}");
    }
    let (_, page) = harness.get("/v1/steps?since=0s&sort=name");
    assert_eq!(
        (ids(&page), &page["left_out"]),
        (vec!["a", "d", "b"], &json!(1))
    );
    assert_eq!(harness.get("/v1/steps?since=0s").1["left_out"], 1);
    assert_eq!(harness.get("/v1/steps").1.get("left_out"), None);
    for (query, expected) in [
        ("sort=nme", "did you mean `name`?"),
        ("sort=age", "steps are not sorted by `age`"),
        ("fields=id,sate", "did you mean `state`?"),
        ("sort=name&cursor=7", "`7` is not a cursor of this list"),
        ("sort=name&cursor=zz", "is not a cursor of this list"),
    ] {
        let (status, answer) = harness.get(&format!("/v1/steps?{query}"));
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains(expected),
            "{query}: {answer}"
        );
    }
}
