//! Fuzz tests of answers of a coordinator, a proxy or a program of this machine, in every kind and every format. Text
//! must control no terminal, and data must stay the data that came.

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_common::api::{
    ApiTokenView, BindingView, ChangesView, ClusterView, ErrorBody, ExplainView, HostView,
    JoinTokenView, NodeView, PolicyView, PoolView, PreviewView, ReplayView, RoleView, StepView,
    TemplateView, ValidationView,
};
use sluice_fuzz::Fuzz;
use ureq::http::StatusCode;

use crate::args::Format;
use crate::client;
use crate::out::Out;
use crate::render::event::Event;
use crate::render::listed::{Listed, full_name, table};
use crate::render::platform::PoolPlatform;
use crate::render::{self, data, is_harmful};

/// Checks text for people: only its own line ends.
fn is_harmless(said: &str) {
    let harmful = said.chars().find(|c| *c != '\n' && is_harmful(*c));
    assert!(harmful.is_none(), "{harmful:?} in {said:?}");
}

/// Checks data for programs: unchanged, and harmless to a terminal.
fn is_kept(value: &impl serde::Serialize) {
    // Compared by text, since a parsed number loses digits beyond a machine word.
    let came: Value = serde_json::from_str(&serde_json::to_string(value).unwrap()).unwrap();
    let json = data::json(value).unwrap();
    is_harmless(&json);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), came);
    is_harmless(&data::yaml(value).unwrap());
}

fn outs() -> [Out; 3] {
    [
        Out::plain(),
        Out::sized(40),
        Out::plain().with_format(Format::Wide).with_labels(true),
    ]
}

/// Renders a list of two, with its totals.
fn listed<T: Listed + DeserializeOwned>(json: &[u8]) -> Option<T> {
    let item: T = serde_json::from_slice(json).ok()?;
    let again: T = serde_json::from_slice(json).ok()?;
    let (items, now) = ([item, again], now());
    for out in outs() {
        let said = table(&items, now, out);
        is_harmless(&said);
        assert!((3..=4).contains(&said.lines().count()), "{said}");
    }
    let name = full_name(&items[0]);
    is_harmless(&name);
    assert_eq!(name.lines().count(), 1);
    is_kept(&items[0]);
    items.into_iter().next()
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn of_step(json: &[u8]) {
    if let Some(step) = listed::<StepView>(json) {
        is_harmless(&render::step::describe(&step, now(), Out::plain()));
    }
}

fn of_node(json: &[u8]) {
    if let Some(node) = listed::<NodeView>(json) {
        is_harmless(&render::node::describe(&node, &[], now(), Out::plain()));
        is_harmless(&render::node::facts(&node).unwrap_or_default());
    }
}

fn of_pool(json: &[u8]) {
    let Some(pool) = listed::<PoolView>(json) else {
        return;
    };
    let said = render::pool::describe(&pool, &[], &[], (&[], &[]), now(), Out::plain());
    is_harmless(&said);
    let platforms: Vec<PoolPlatform> = PoolPlatform::of(pool).collect();
    is_harmless(&table(&platforms, now(), Out::plain()));
}

fn of_host(json: &[u8]) {
    if let Ok(host) = serde_json::from_slice::<HostView>(json) {
        is_kept(&host);
        is_harmless(&render::host::describe(&host, Out::plain()));
        is_harmless(&render::host::gpus(&host, Out::plain()));
    }
}

fn of_template(json: &[u8]) {
    if let Some(template) = listed::<TemplateView>(json) {
        is_harmless(&render::template::describe(&template).unwrap());
    }
}

fn of_validation(json: &[u8]) {
    if let Some(validation) = listed::<ValidationView>(json) {
        is_harmless(&render::validation::describe(&validation));
    }
}

fn of_role(json: &[u8]) {
    if let Some(role) = listed::<RoleView>(json) {
        is_harmless(&render::access::role(&role));
    }
}

fn shown<T: DeserializeOwned>(json: &[u8], show: impl Fn(&T) -> String) {
    if let Ok(view) = serde_json::from_slice::<T>(json) {
        is_harmless(&show(&view));
    }
}

/// Checks the rendering of errors, which may contain anybody's text.
fn of_error(body: &[u8]) {
    let said = serde_json::from_slice(body).map_or_else(
        |_| client::foreign_error(StatusCode::BAD_GATEWAY, body).message,
        |body: ErrorBody| body.error.message,
    );
    is_harmless(&crate::out::harmless(&said));
}

/// Checks an answer whose first byte selects its kind.
#[test]
fn answers_of_a_coordinator() {
    let words = [
        "\"name\":",
        "\"id\":",
        "\"labels\":{",
        "\"message\":",
        "\"reason\":{",
        "\"state\":\"running\"",
        "\"\\u001b[2J\"",
        "\"\\u202e\"",
        "\u{202e}",
        "18446744073709551615",
        "-1",
        "\"9999-12-31T23:59:59Z\"",
        "\"-009999-01-02T00:00:00Z\"",
        "null",
        "{}",
        "[]",
        "\"gpus\":[",
        "\"error\":{",
        "\"code\":",
        "\"command\":[",
    ];
    let plain = Out::plain();
    Fuzz::new("answers")
        .words(&words)
        .memory(8 << 20, 4096)
        .run(|input| {
            let Some((kind, json)) = input.split_first() else {
                return;
            };
            match kind % 18 {
                0 => of_step(json),
                1 => of_node(json),
                2 => of_pool(json),
                3 => of_host(json),
                4 => of_template(json),
                5 => of_validation(json),
                6 => of_role(json),
                7 => drop(listed::<PolicyView>(json)),
                8 => drop(listed::<ClusterView>(json)),
                9 => drop(listed::<BindingView>(json)),
                10 => drop(listed::<ApiTokenView>(json)),
                11 => drop(listed::<JoinTokenView>(json)),
                12 => drop(listed::<Event>(json)),
                13 => shown(json, |view: &ExplainView| {
                    render::explain::explain(view, now(), plain)
                }),
                14 => shown(json, |view: &PreviewView| {
                    render::preview::preview(view, plain)
                }),
                15 => shown(json, |view: &ReplayView| render::replay::state(view, plain)),
                16 => shown(json, |view: &ChangesView| {
                    render::replay::changes(view, plain)
                }),
                _ => of_error(json),
            }
        });
}
