//! Tests of roles, bindings and tokens: stored with pools or not at all, and rolled back after a dry run.

use alloc::vec;
use alloc::vec::Vec;

use sluice_common::access::{ApiToken, BindingSpec, RoleSpec, TokenDigest};
use sluice_common::id::{BindingName, RoleName, TokenName};

use super::harness::Harness;
use crate::input::{Desired, Input, ReplyId};
use crate::model::access::AccessChange;
use crate::output::{Answer, Refusal};

fn role(name: &str) -> RoleName {
    RoleName::new(name).unwrap()
}

fn put_role(name: &str) -> Desired {
    let change = AccessChange::RolePut {
        role: role(name),
        terms: RoleSpec::default(),
    };
    Desired::Access { change }
}

fn put_binding(name: &str, roles: &[&str]) -> Desired {
    let terms = BindingSpec {
        roles: roles.iter().map(|name| role(name)).collect(),
        ..BindingSpec::default()
    };
    let binding = BindingName::new(name).unwrap();
    let change = AccessChange::BindingPut { binding, terms };
    Desired::Access { change }
}

fn refusal_of(harness: &mut Harness, wanted: Vec<Desired>) -> Refusal {
    let effects = harness.apply(wanted);
    let Some(Answer::Applied(Err(refused))) = effects.answers.into_iter().next() else {
        panic!("the changes were made");
    };
    refused.refusal
}

#[test]
fn a_binding_is_made_with_its_role_or_not_at_all() {
    let mut harness = Harness::new();
    let refusal = refusal_of(
        &mut harness,
        vec![put_binding("b", &["night", "gone"]), put_role("night")],
    );
    assert_eq!(refusal, Refusal::UnknownRole { role: role("gone") });
    assert!(
        harness.core.state().access().is_empty(),
        "nothing of it is left"
    );
    harness.apply(vec![
        put_binding("b", &["night", "pool-default-viewer"]),
        put_role("night"),
    ]);
    let access = harness.core.state().access();
    assert_eq!((access.roles.len(), access.bindings.len()), (1, 1));
    let gone = AccessChange::RoleDeleted {
        role: role("night"),
    };
    let refusal = refusal_of(&mut harness, vec![Desired::Access { change: gone }]);
    assert!(matches!(refusal, Refusal::RoleInUse { .. }), "{refusal}");
}

#[test]
fn what_is_so_already_is_not_recorded() {
    let mut harness = Harness::new();
    harness.apply(vec![put_role("night")]);
    let seq = harness.core.state().seq();
    harness.apply(vec![put_role("night")]);
    assert_eq!(harness.core.state().seq(), seq);
}

#[test]
fn a_token_has_its_name_alone_until_it_is_revoked() {
    let mut harness = Harness::new();
    let token = TokenName::new("ci").unwrap();
    let terms = ApiToken {
        digest: TokenDigest::from_hash(&[7; 32]),
        grants: Vec::new(),
        user: None,
        created_by: "admin".into(),
        expires_at: None,
    };
    let create = AccessChange::ApiTokenCreated {
        token: token.clone(),
        terms,
    };
    let revoke = AccessChange::ApiTokenRevoked {
        token: token.clone(),
    };
    let mut change = |it: &AccessChange| {
        let effects = harness.feed(Input::Access {
            reply: ReplyId(9),
            change: it.clone(),
        });
        let Some(Answer::Changed(done)) = effects.answers.into_iter().next() else {
            panic!("a change of tokens is answered as one");
        };
        done
    };
    assert_eq!(change(&create), Ok(()));
    let exists = Refusal::ApiTokenExists { token };
    assert_eq!(change(&create), Err(exists));
    assert_eq!(change(&revoke), Ok(()));
    assert!(matches!(
        change(&revoke),
        Err(Refusal::UnknownApiToken { .. })
    ));
    assert_eq!(change(&create), Ok(()));
}
