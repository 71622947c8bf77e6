//! The rights of a caller: the roles of its token and of the bindings that it is a member of, with its own names filled
//! in. Names come only from what an authority vouches for: claims from the verified token of an issuer, users also from
//! a certificate, or from the API token that an admin made for them.

use coordinator_core::AccessSnapshot;
use sluice_common::access::{
    AccessQuery, BindingSpec, BindingSubject, CallerField, Decision, Member, NamePattern, OneOrAll,
    Resource, RoleGrant, RoleSpec, Scope, Verb, decide,
};
use sluice_common::api::MissingSubject;
use sluice_common::id::{PoolName, RoleName, Subject};

use super::super::masked::masked;
use super::{Caller, Identity};

/// The rights of a caller that may not do everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallerAccess {
    /// Granted roles with their contents.
    pub(super) granted: Vec<(RoleGrant, RoleSpec)>,
    /// Subjects of bindings that the caller has no name for.
    pub(super) unfilled: Vec<MissingSubject>,
    /// Contents of the roles of those.
    missed: Vec<(RoleName, RoleSpec)>,
}

impl CallerAccess {
    /// Evaluates the rights of an identity; `None` is everything.
    pub(super) fn of(who: &Identity, snapshot: &AccessSnapshot) -> Option<Self> {
        let mut grants: Vec<RoleGrant> = match who {
            Identity::Local | Identity::Admin(_) => return None,
            Identity::Token { name, .. } => {
                let stored = snapshot.access.tokens.get(name);
                stored.map_or_else(Vec::new, |stored| stored.token.grants.clone())
            }
            Identity::Certificate(_) | Identity::Claims(_) => Vec::new(),
        };
        let mut rights = Self::default();
        let bindings = snapshot.access.bindings.values().map(|it| &it.terms);
        for binding in bindings.filter(|it| it.members.iter().any(|member| is(who, member))) {
            grants.extend(binding.grants(&rights.fill(who, binding)));
        }
        // A deleted role gives nothing.
        let granted = grants.into_iter();
        let granted = granted.filter_map(|grant| Some((snapshot.role(&grant.role)?, grant)));
        rights.granted = granted.map(|(role, grant)| (grant, role)).collect();
        let missed = rights.unfilled.iter().flat_map(|it| &it.roles);
        let missed = missed.filter_map(|role| Some((role.clone(), snapshot.role(role)?)));
        rights.missed = missed.collect();
        Some(rights)
    }

    /// Fills in the subjects of a binding, and notes those that the caller has no name for.
    fn fill(&mut self, who: &Identity, binding: &BindingSpec) -> Vec<NamePattern> {
        let mut filled = Vec::new();
        for subject in &binding.subjects {
            match fill(who, subject) {
                Ok(patterns) => filled.extend(patterns),
                Err(why) => self.unfilled.push(MissingSubject {
                    roles: binding.roles.clone(),
                    subject: subject.clone(),
                    why,
                }),
            }
        }
        filled
    }

    /// Whether a role that the caller does not get would give a right on something.
    pub(super) fn would_give(&self, role: &RoleName, query: &AccessQuery<'_>) -> bool {
        let anywhere = AccessQuery {
            pool: Scope::Any,
            subject: Scope::Any,
            ..*query
        };
        let mut missed = self.missed.iter().filter(|(name, _)| name == role);
        missed.any(|(name, spec)| {
            let grant = RoleGrant {
                role: name.clone(),
                pools: Vec::new(),
                subjects: Vec::new(),
            };
            decide(std::iter::once((&grant, spec)), &anywhere) == Decision::Allowed
        })
    }
}

/// Fills in a subject of a binding; fails with the reason if the caller has no name that makes one.
fn fill(who: &Identity, subject: &BindingSubject) -> Result<Vec<NamePattern>, String> {
    let values = match subject.field() {
        None => vec![String::new()],
        Some(CallerField::User) => {
            let user = who.user().map(String::from);
            vec![user.ok_or("you have no user name")?]
        }
        Some(CallerField::Claim(name)) => claim(who, name)?,
    };
    let mut why = "it is empty".to_owned();
    let filled = values.iter().filter_map(|value| {
        let filled = subject.fill(value);
        filled
            .map_err(|error| why = masked(&error.to_string()).into_owned())
            .ok()
    });
    let filled: Vec<NamePattern> = filled.collect();
    match filled.is_empty() {
        true => Err(why),
        false => Ok(filled),
    }
}

/// Returns the texts of a claim. Only tokens of an issuer have claims.
fn claim(who: &Identity, name: &str) -> Result<Vec<String>, String> {
    let Identity::Claims(found) = who else {
        return Err("only the tokens of an issuer have claims".to_owned());
    };
    if found.not_texts.contains(name) {
        return Err(format!(
            "your claim `{name}` is neither a text nor a list of texts"
        ));
    }
    let values = found.claims.get(name).cloned();
    values.ok_or_else(|| format!("your token has no claim `{name}`"))
}

fn is(who: &Identity, member: &Member) -> bool {
    match (who, member) {
        (Identity::Token { name, .. }, Member::Token(member)) => name == member,
        (Identity::Certificate(shown), Member::Certificate(member)) => shown.user == *member,
        (Identity::Claims(found), Member::Claims(wanted)) => {
            let says = |(name, value): (&String, &String)| {
                let values = found.claims.get(name);
                values.is_some_and(|values| values.contains(value))
            };
            !wanted.is_empty() && wanted.iter().all(says)
        }
        // A token that was made for a user has the rights that were given to the token, not all of the user's.
        (Identity::Certificate(_) | Identity::Claims(_), Member::User(member)) => {
            let user = who.user();
            user.is_some_and(|user| OneOrAll::matches(member, &user))
        }
        _ => false,
    }
}

impl Caller {
    /// Returns the subject that the caller may submit for, if it is exactly one.
    pub(in super::super) fn submits_for(&self) -> Option<Subject> {
        // A role with subjects of its own narrows those of the grant: then it is not one that is known here.
        let is_open = |role: &RoleSpec| role.rules.iter().all(|rule| rule.subjects.is_empty());
        let one = |(grant, role): (&RoleGrant, &RoleSpec)| match &grant.subjects[..] {
            [one] if is_open(role) => Subject::new(one.as_str()).ok(),
            _ => None,
        };
        let subject = only(self.submitting(Scope::Any).map(one))?;
        (!subject.is_everyone()).then_some(subject)
    }

    /// Returns the pool that the caller may submit steps of a subject to, if it is exactly one.
    pub(in super::super) fn submits_to(&self, subject: &Subject) -> Option<PoolName> {
        let subject = Scope::One(subject.as_str());
        // Those of the grant, and else of each rule of the role; a rule without any is for all pools.
        let pools = |(grant, role): (&RoleGrant, &RoleSpec)| -> Vec<Option<PoolName>> {
            let one = |pools: &[NamePattern]| match pools {
                [one] => PoolName::new(one.as_str()).ok(),
                _ => None,
            };
            match grant.pools.is_empty() {
                true => role.rules.iter().map(|rule| one(&rule.pools)).collect(),
                false => vec![one(&grant.pools)],
            }
        };
        let pool = only(self.submitting(subject).flat_map(pools))?;
        let there = Scope::One(pool.as_str());
        let may = self.may(Verb::Create, Resource::Steps, there, subject);
        may.then_some(pool)
    }

    /// Returns the grants, each with its role, that give the right to submit steps of a subject to some pool.
    fn submitting<'a>(
        &'a self,
        subject: Scope<'a>,
    ) -> impl Iterator<Item = (&'a RoleGrant, &'a RoleSpec)> {
        let query = AccessQuery {
            verb: Verb::Create,
            resource: Resource::Steps,
            pool: Scope::Any,
            subject,
        };
        self.roles()
            .filter(move |it| decide(std::iter::once(*it), &query) == Decision::Allowed)
    }
}

/// Returns the only value of all, if they are known and the same.
fn only<T: PartialEq>(mut all: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = all.next()??;
    all.all(|it| it.as_ref() == Some(&first)).then_some(first)
}
