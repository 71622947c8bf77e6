//! Names in `after`: the steps of a file may name each other by `name`, so that the same file can be submitted many times
//! and each time gets ids of its own.

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::error_code::ErrorCode;
use sluice_common::request::{FieldError, StepRequest};

/// Puts ids in place of the names of other steps of the file. All steps have ids. A text that is no such name is the id of
/// a step, here or in the cluster.
///
/// # Errors
/// If several steps have a name that is named, with the index of the step that names it.
pub(crate) fn resolve(requests: &mut [StepRequest]) -> Result<(), (usize, FieldError)> {
    let mut ids: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for request in requests.iter() {
        if let (Some(name), Some(id)) = (&request.name, &request.id) {
            ids.entry(name.clone()).or_default().push(id.clone());
        }
    }
    for request in requests.iter() {
        // An id goes before a name.
        request.id.as_ref().and_then(|id| ids.remove(id));
    }
    for (i, request) in requests.iter_mut().enumerate() {
        for (place, text) in request.after.iter_mut().enumerate() {
            let (name, end) = match text.rsplit_once(':') {
                Some((name, end)) => (name, Some(end)),
                None => (text.as_str(), None),
            };
            let (name, end) = match name
                .strip_suffix(":each")
                .filter(|_| !ids.contains_key(name))
            {
                Some(array) => (array, end.map(|end| format!("each:{end}"))),
                None => (name, end.map(str::to_owned)),
            };
            let id = match ids.get(name).map(Vec::as_slice) {
                None => continue,
                Some([id]) => id,
                Some(ids) => {
                    let message = format!(
                        "{} steps of this file are called `{name}`: give the one that is meant an `id`, and name that",
                        ids.len()
                    );
                    let field = format!("after[{place}]");
                    return Err((
                        i,
                        FieldError::new(ErrorCode::InvalidDependency, field, message),
                    ));
                }
            };
            *text = end.map_or_else(|| id.clone(), |end| format!("{id}:{end}"));
        }
    }
    Ok(())
}

/// Removes dependencies on other steps of the file, which a dry run does not store: each step is judged alone.
pub(crate) fn without_each_other(mut requests: Vec<StepRequest>) -> Vec<StepRequest> {
    let ids: BTreeSet<String> = requests.iter().filter_map(|it| it.id.clone()).collect();
    for request in &mut requests {
        let is_here = |text: &String| ids.contains(text.split(':').next().unwrap_or(text));
        request.after.retain(|text| !is_here(text));
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(id: &str, name: &str, after: &[&str]) -> StepRequest {
        StepRequest {
            id: Some(id.to_owned()),
            name: Some(name.to_owned()),
            after: after.iter().map(ToString::to_string).collect(),
            ..StepRequest::default()
        }
    }

    #[test]
    fn names_of_the_file_become_ids_and_the_rest_stays() {
        let mut requests = [
            step("k3v9", "prep", &[]),
            step("x7p2", "train", &["prep", "other", "tell:any"]),
            step("q1q1", "tell", &["train:failed"]),
            step("w2w2", "each", &["prep:each", "train:each:any"]),
        ];
        resolve(&mut requests).expect("each name is that of one step");
        assert_eq!(requests[3].after, ["k3v9:each", "x7p2:each:any"]);
        assert_eq!(requests[1].after, ["k3v9", "other", "q1q1:any"]);
        assert_eq!(requests[2].after, ["x7p2:failed"]);
    }

    #[test]
    fn an_id_goes_before_a_name() {
        let mut requests = [
            step("prep", "first", &[]),
            step("x7p2", "prep", &[]),
            step("q1q1", "tell", &["prep"]),
        ];
        resolve(&mut requests).expect("it is an id");
        assert_eq!(requests[2].after, ["prep"]);
    }

    #[test]
    fn a_name_of_several_steps_is_refused_where_it_is_named() {
        let mut requests = [
            step("k3v9", "prep", &[]),
            step("x7p2", "prep", &[]),
            step("q1q1", "tell", &["x7p2", "prep:any"]),
        ];
        let (i, error) = resolve(&mut requests).expect_err("two have that name");
        assert_eq!((i, error.field.as_str()), (2, "after[1]"));
        assert_eq!(
            error.message,
            "2 steps of this file are called `prep`: give the one that is meant an `id`, and name that"
        );
    }
}
