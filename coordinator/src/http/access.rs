//! Whether a caller may do what it asks for. `access/table.rs` says of each call which right it needs and where that is
//! judged: for one thing before its handler runs, by [`admit`]; for lists one by one and for bodies by what they say, by
//! the handlers, which ask the same [`Caller`].
//!
//! Who the caller is was found out by `auth.rs`. What rights mean is `sluice_common::access`.

mod place;
mod records;
pub(super) mod table;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use coordinator_core::{Book, Core, Refusal, Step};
use sluice_common::access::{
    AccessQuery, AuditEntry, Decision, Effect, Member, NamePattern, Resource, RoleGrant, RoleSpec,
    Scope, TokenDigest, Verb, decide,
};
use sluice_common::api::StepView;
use sluice_common::environment::HIDDEN;
use sluice_common::id::{NodeName, PoolName, RoleName, Subject, TokenName, UserName};
use sluice_common::time::Time;

use super::Api;
use super::edge::UserCertificate;
use super::error::ApiError;
use super::masked::masked;
use super::oidc::Identified;
use crate::clock::wall;
use crate::view;

pub(super) use place::{Call, admit, may_replace};
pub(super) use records::Places;
pub(super) use watch::{AccessChanges, AccessWatch, LastWord, WatchedUpgrade};

/// Longest name that an event carries; longer ones are cut.
const MAX_AUDITED_CHARS: usize = 128;

/// By what somebody is known.
#[derive(Clone, Debug)]
pub(super) enum Who {
    /// A program of this machine, where no credentials are configured.
    Local,
    /// Whoever has the coordinator's own token.
    Admin(TokenDigest),
    /// An API token.
    Token {
        name: TokenName,
        /// Another of the same name may be made after it was revoked.
        digest: TokenDigest,
        /// The user for whom an admin has had it made.
        user: Option<UserName>,
        expires_at: Option<Time>,
    },
    /// A certificate of a user.
    Certificate(UserCertificate),
    /// A token of an issuer, with what it says of him.
    Claims(Identified),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Who::Local => f.write_str("local"),
            Who::Admin(_) => f.write_str("admin"),
            Who::Token { name, .. } => write!(f, "token/{name}"),
            Who::Certificate(shown) => write!(f, "certificate/{}", shown.user),
            Who::Claims(found) => write!(f, "claims/{}", shown(&found.name)),
        }
    }
}

impl Who {
    /// The user that an authority vouches for: of a token its name says nothing, since whoever makes it chooses that. A
    /// name that is longer or has other characters than a user's is no user's: cut, it might be somebody else's.
    pub(super) fn user(&self) -> Option<UserName> {
        match self {
            Who::Local | Who::Admin(_) => None,
            Who::Token { user, .. } => user.clone(),
            Who::Certificate(shown) => UserName::new(shown.user.as_str()).ok(),
            Who::Claims(found) => UserName::new(found.name.as_str()).ok(),
        }
    }

    /// When what he shows expires.
    pub(super) fn expires_at(&self) -> Option<Time> {
        match self {
            Who::Local | Who::Admin(_) => None,
            Who::Token { expires_at, .. } => *expires_at,
            Who::Certificate(shown) => Some(shown.expires_at),
            Who::Claims(found) => Some(found.expires_at),
        }
    }

    /// Refuses where what he shows would be refused now.
    fn is_still_known(&self, api: &Api, book: &Book) -> Result<(), ApiError> {
        let credentials = &api.0.credentials;
        let is_over = self.expires_at().is_some_and(|end| end <= wall());
        let why = match self {
            Who::Local if !credentials.are_none() => "nothing is shown, and a token is needed now",
            Who::Admin(digest) if !credentials.is_admin(digest) => {
                "the coordinator's own token is another one now"
            }
            Who::Token { name, digest, .. } => {
                let known = book.access.tokens.get(name);
                match known.is_some_and(|kept| kept.token.digest == *digest) && !is_over {
                    true => return Ok(()),
                    false => "the token has expired or was revoked",
                }
            }
            Who::Certificate(shown) if !shown.is_good() => {
                "the certificate has expired, or its authority's users are known no longer"
            }
            Who::Claims(_) if is_over => "the token has expired: get a new one from the issuer",
            Who::Local | Who::Admin(_) | Who::Certificate(_) | Who::Claims(_) => return Ok(()),
        };
        Err(ApiError::Unauthorized { why })
    }
}

/// Who calls, and what he may do. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Caller(Arc<Known>);

#[derive(Debug)]
struct Known {
    who: Who,
    from: String,
    /// `None` is everything.
    rights: Option<Vec<(RoleGrant, RoleSpec)>>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Whoever comes past the check is known: without it nobody is let in.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or(ApiError::Unauthorized {
            why: "nobody has looked at who calls",
        })
    }
}

impl Caller {
    /// Somebody with all that the book gives him.
    pub(super) fn new(who: Who, from: String, book: &Book) -> Self {
        let rights = rights(&who, book);
        Self(Arc::new(Known { who, from, rights }))
    }

    pub(super) fn who(&self) -> &Who {
        &self.0.who
    }

    /// What his idempotency keys are bound to: the same for the same caller, and for nobody else. One kind of credentials
    /// cannot spell another's, and nothing of a name is left out, as it may be where it is shown.
    pub(super) fn binding(&self) -> String {
        match &self.0.who {
            Who::Claims(found) => format!("claims/{}", found.name),
            who => who.to_string(),
        }
    }

    /// Whether nothing is kept from him.
    pub(super) fn is_unbounded(&self) -> bool {
        self.0.rights.is_none()
    }

    /// What was given to him; none where he may do everything.
    pub(super) fn grants(&self) -> impl Iterator<Item = &RoleGrant> {
        let rights = self.0.rights.iter().flatten();
        rights.map(|(grant, _)| grant)
    }

    /// The same caller by what is known now: whoever goes on for long does so by the rights that he has now.
    pub(super) fn still(&self, api: &Api) -> Result<Self, ApiError> {
        let book = api.engine().book();
        self.0.who.is_still_known(api, &book)?;
        Ok(Self::new(self.0.who.clone(), self.0.from.clone(), &book))
    }

    /// Whether both may do the same.
    pub(super) fn has_rights_of(&self, other: &Self) -> bool {
        self.0.rights == other.0.rights
    }

    pub(super) fn judge(&self, ask: &AccessQuery<'_>) -> Decision {
        match &self.0.rights {
            None => Decision::Allowed,
            Some(rights) => decide(rights.iter().map(|(grant, role)| (grant, role)), ask),
        }
    }

    pub(super) fn may(&self, verb: Verb, resource: Resource, pool: Scope, subject: Scope) -> bool {
        let ask = AccessQuery {
            verb,
            resource,
            pool,
            subject,
        };
        self.judge(&ask) == Decision::Allowed
    }

    /// Whether he may do something to a step of this subject, in this pool.
    pub(super) fn may_step(
        &self,
        verb: Verb,
        resource: Resource,
        subject: &str,
        pool: Option<&str>,
    ) -> bool {
        let pool = pool.map_or(Scope::Every, Scope::One);
        self.may(verb, resource, pool, Scope::One(subject))
    }

    /// Whether a list shows him this step.
    pub(super) fn lists(&self, core: &Core, step: &Step) -> bool {
        self.is_unbounded() || {
            let pool = view::pool_of(core, step).map(PoolName::as_str);
            let subject = step.spec.subject.as_str();
            self.may_step(Verb::List, Resource::Steps, subject, pool)
        }
    }

    /// Whether a list shows him what is in a pool: the pool itself, or a node of it.
    pub(super) fn lists_in(&self, resource: Resource, pool: &PoolName) -> bool {
        let pool = Scope::One(pool.as_str());
        self.may(Verb::List, resource, pool, Scope::Unscoped)
    }

    /// The same of a thing that may be of no pool, which is shown to whoever may see those of all.
    pub(super) fn lists_by(&self, resource: Resource, pool: Option<&PoolName>) -> bool {
        match pool {
            Some(pool) => self.lists_in(resource, pool),
            None => self.may(Verb::List, resource, Scope::Every, Scope::Unscoped),
        }
    }

    /// Whether a list shows him this policy.
    pub(super) fn lists_policy(&self, pool: &PoolName, subject: &Subject) -> bool {
        let (pool, subject) = (Scope::One(pool.as_str()), Scope::One(subject.as_str()));
        self.may(Verb::List, Resource::Policies, pool, subject)
    }

    /// A step as he may see it: without the values of its environment, unless he has the right to those.
    pub(super) fn seen(&self, mut view: StepView) -> StepView {
        let pool = view.pool.as_deref();
        if !self.may_step(Verb::Get, Resource::StepEnv, &view.subject, pool) {
            hide(&mut view);
        }
        view
    }

    /// A refusal as he may hear it: of a step that he may not see he is told nothing but that its id is taken.
    pub(super) fn told(&self, core: &Core, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::IdInUse { step, .. }
                if !core
                    .state()
                    .step(&step)
                    .is_some_and(|it| self.lists(core, it)) =>
            {
                let differs = "subject".to_owned();
                Refusal::IdInUse { step, differs }
            }
            refusal => refusal,
        }
    }

    /// Refuses, unless he may.
    pub(super) fn need(&self, ask: &AccessQuery<'_>, name: Option<&str>) -> Result<(), ApiError> {
        match self.judge(ask) {
            Decision::Allowed => Ok(()),
            verdict => Err(self.refusal(ask, name, &verdict)),
        }
    }

    /// That he may not, what is missing, and what would give it.
    pub(super) fn refusal(
        &self,
        ask: &AccessQuery<'_>,
        name: Option<&str>,
        verdict: &Decision,
    ) -> ApiError {
        let denied = match verdict {
            Decision::Denied(role) => Some(role.clone()),
            Decision::Allowed | Decision::NotGranted => None,
        };
        ApiError::Forbidden {
            who: self.0.who.to_string(),
            verb: ask.verb,
            resource: ask.resource,
            name: name.map(shown),
            place: place_of(ask),
            denied,
            roles: giving(ask),
        }
    }

    /// Refuses to give away more than he has himself: the same roles, for no more pools and subjects, and with whatever
    /// denies him something.
    pub(super) fn may_give(&self, grants: &[RoleGrant]) -> Result<(), ApiError> {
        let within = |own: &[NamePattern], given: &[NamePattern]| {
            own.is_empty() || (!given.is_empty() && given.iter().all(|it| own.contains(it)))
        };
        let has = |wanted: &RoleGrant| {
            self.grants().any(|own| {
                own.role == wanted.role
                    && within(&own.pools, &wanted.pools)
                    && within(&own.subjects, &wanted.subjects)
            })
        };
        if self.is_admin() {
            return Ok(());
        }
        let who = self.0.who.to_string();
        if let Some(RoleGrant { role, .. }) = grants.iter().find(|wanted| !has(wanted)) {
            let role = role.clone();
            return Err(ApiError::GivesMore { who, role });
        }
        // Where all that is given holds, what denies holds too.
        let kept = |own: &RoleGrant| grants.iter().any(|given| given.role == own.role);
        match self.denying().find(|own| !kept(own)) {
            None => Ok(()),
            Some(RoleGrant { role, .. }) => {
                let role = role.clone();
                Err(ApiError::GivesPast { who, role })
            }
        }
    }

    /// Refuses to make a token in the name of somebody else: as whom a step is submitted may be as whom it runs.
    pub(super) fn may_name(&self, user: Option<&UserName>) -> Result<(), ApiError> {
        match user {
            Some(user) if !self.is_admin() && self.0.who.user().as_ref() != Some(user) => {
                Err(ApiError::GivesName {
                    who: self.0.who.to_string(),
                    user: user.clone(),
                })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What was given to him that takes something away.
    fn denying(&self) -> impl Iterator<Item = &RoleGrant> {
        let denies = |role: &RoleSpec| role.rules.iter().any(|rule| rule.effect == Effect::Deny);
        let rights = self.0.rights.iter().flatten();
        rights.filter_map(move |(grant, role)| denies(role).then_some(grant))
    }

    /// Whether he may do everything everywhere.
    pub(super) fn is_admin(&self) -> bool {
        let may = |(verb, resource): (&Verb, &Resource)| {
            self.may(*verb, *resource, Scope::Every, Scope::Every)
        };
        let all = |verb| Resource::ALL.iter().map(move |resource| (verb, resource));
        self.is_unbounded() || Verb::ALL.iter().flat_map(all).all(may)
    }

    /// Refuses, unless he may do everything.
    pub(super) fn need_all(
        &self,
        ask: &AccessQuery<'_>,
        name: Option<&str>,
    ) -> Result<(), ApiError> {
        match self.is_admin() {
            true => Ok(()),
            false => Err(self.refusal(ask, name, &Decision::NotGranted)),
        }
    }

    /// Notes that he does something.
    pub(super) async fn note(
        &self,
        api: &Api,
        (verb, resource): (Verb, Resource),
        name: Option<&str>,
    ) -> Result<(), ApiError> {
        let entry = AuditEntry {
            who: self.0.who.to_string(),
            from: self.0.from.clone(),
            verb,
            resource,
            name: name.map(shown),
            allowed: true,
            refusal: None,
        };
        Ok(api.engine().audit(entry).await?)
    }
}

/// A name out of a call as it may be told: cut, without a token, and without anything that a terminal would obey.
pub(super) fn shown(name: &str) -> String {
    let told = masked(name);
    let chars = told.chars().take(MAX_AUDITED_CHARS);
    chars.flat_map(char::escape_debug).collect()
}

/// Hides the values of a step's own variables, where it stands alone and where it stands on templates. What those add are
/// documents, which are shown for themselves.
fn hide(view: &mut StepView) {
    let below = view.merged.as_mut().map(|merged| &mut merged.result.env);
    for (name, value) in below.into_iter().flat_map(|env| env.iter_mut()) {
        if view.env.contains_key(name) {
            HIDDEN.clone_into(value);
        }
    }
    for value in view.env.values_mut() {
        HIDDEN.clone_into(value);
    }
}

fn rights(who: &Who, book: &Book) -> Option<Vec<(RoleGrant, RoleSpec)>> {
    let mut grants: Vec<RoleGrant> = match who {
        Who::Local | Who::Admin(_) => return None,
        Who::Token { name, .. } => {
            let kept = book.access.tokens.get(name);
            kept.map_or_else(Vec::new, |kept| kept.token.grants.clone())
        }
        Who::Certificate(_) | Who::Claims(_) => Vec::new(),
    };
    let bindings = book.access.bindings.values();
    let bound = bindings.filter(|it| it.terms.members.iter().any(|member| is(who, member)));
    grants.extend(bound.flat_map(|it| it.terms.grants()));
    let known = grants.into_iter();
    // A role that is gone gives nothing: of a pool that was deleted.
    Some(
        known
            .filter_map(|grant| book.role(&grant.role).map(|role| (grant, role)))
            .collect(),
    )
}

fn is(who: &Who, member: &Member) -> bool {
    match (who, member) {
        (Who::Token { name, .. }, Member::Token(member)) => name == member,
        (Who::Certificate(shown), Member::Certificate(member)) => shown.user == *member,
        (Who::Claims(found), Member::Claims(wanted)) => {
            let says = |(name, value): (&String, &String)| {
                let values = found.claims.get(name);
                values.is_some_and(|values| values.contains(value))
            };
            !wanted.is_empty() && wanted.iter().all(says)
        }
        _ => false,
    }
}

/// In which pool and for which subject, where that was said by the caller himself.
fn place_of(ask: &AccessQuery<'_>) -> String {
    let said = |what, at| match at {
        Scope::One(name) => format!(" {what} `{}`", shown(name)),
        Scope::Every | Scope::Any | Scope::Unscoped => String::new(),
    };
    let submits = (ask.verb, ask.resource) == (Verb::Create, Resource::Steps);
    let pool = match ask.pool {
        Scope::Every if submits => {
            " that name no pool and could run in any (name one of yours with `--pool`)".to_owned()
        }
        pool => said("in pool", pool),
    };
    pool + &said("of subject", ask.subject)
}

/// The built-in roles that would give a right, the least of them first.
fn giving(ask: &AccessQuery<'_>) -> Vec<RoleName> {
    let least_first = ["viewer", "submitter", "operator", "admin"];
    let of_pool = match ask.pool {
        Scope::One(pool) => sluice_common::access::pool_roles(pool).collect(),
        Scope::Every | Scope::Any | Scope::Unscoped => Vec::new(),
    };
    let names = least_first.into_iter().map(str::to_owned);
    let roles = names
        .chain(of_pool)
        .filter_map(|name| RoleName::new(name).ok());
    let gives = |role: &RoleName| {
        let terms = sluice_common::access::built_in_role(role, |_| true);
        let grant = RoleGrant {
            role: role.clone(),
            pools: Vec::new(),
            subjects: Vec::new(),
        };
        terms.is_some_and(|terms| {
            decide(std::iter::once((&grant, &terms)), ask) == Decision::Allowed
        })
    };
    roles.filter(gives).collect()
}

/// Where a node is, so far as that is known.
pub(super) fn pool_of_node(core: &Core, node: &str) -> Option<PoolName> {
    let node = NodeName::new(node).ok()?;
    core.state().node(&node).map(|node| node.pool.clone())
}
