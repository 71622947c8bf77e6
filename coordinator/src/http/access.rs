//! Authorises calls. `access/table.rs` has the right that each call needs and its scope. A call on one thing is checked
//! before its handler runs, by [`admit`]; lists item by item and bodies by content, by the handlers, through the same
//! [`Caller`].
//!
//! `auth.rs` authenticates the caller. `sluice_common::access` defines what rights mean.

mod records;
mod rights;
mod scope;
pub(super) mod table;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use coordinator_core::{AccessSnapshot, Core, Refusal, Step};
use sluice_common::access::{
    AccessQuery, AuditEntry, Decision, Effect, NamePattern, Resource, RoleGrant, RoleSpec, Scope,
    TokenDigest, Verb, decide,
};
use sluice_common::api::{MissingSubject, StepView};
use sluice_common::environment::HIDDEN;
use sluice_common::id::{NodeName, PoolName, RoleName, Subject, TokenName, UserName};
use sluice_common::time::Time;

use super::Api;
use super::connections::UserCertificate;
use super::error::ApiError;
use super::masked::masked;
use super::oidc::TokenIdentity;
use crate::clock::wall;

pub(super) use records::RecordScopes;
use rights::CallerAccess;
pub(super) use scope::{RoutedCall, admit, may_replace};
pub(super) use watch::{AccessChanges, AccessWatch, CloseReason, WatchedUpgrade};

/// Longest name in an event; longer ones are cut.
const MAX_AUDITED_CHARS: usize = 128;

/// The authenticated identity of a caller.
#[derive(Clone, Debug)]
pub(super) enum Identity {
    /// A program of this machine, if no credentials are configured.
    Local,
    Admin(TokenDigest),
    Token {
        name: TokenName,
        /// Hash of the secret: another token of the same name may be made after a revocation.
        digest: TokenDigest,
        /// User for whom an admin made the token.
        user: Option<UserName>,
        expires_at: Option<Time>,
    },
    Certificate(UserCertificate),
    /// A token of an OIDC issuer, with its claims.
    Claims(TokenIdentity),
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Identity::Local => f.write_str("local"),
            Identity::Admin(_) => f.write_str("admin"),
            Identity::Token { name, .. } => write!(f, "token/{name}"),
            Identity::Certificate(shown) => write!(f, "certificate/{}", shown.user),
            Identity::Claims(found) => write!(f, "claims/{}", shown(&found.name)),
        }
    }
}

impl Identity {
    /// Returns the user that an authority vouches for. The name of an API token does not count, because its maker chose
    /// it. A name that is too long or has other characters is no user name: cut, it might be somebody else's.
    pub(super) fn user(&self) -> Option<UserName> {
        match self {
            Identity::Local | Identity::Admin(_) => None,
            Identity::Token { user, .. } => user.clone(),
            Identity::Certificate(shown) => UserName::new(shown.user.as_str()).ok(),
            Identity::Claims(found) => UserName::new(found.name.as_str()).ok(),
        }
    }

    pub(super) fn expires_at(&self) -> Option<Time> {
        match self {
            Identity::Local | Identity::Admin(_) => None,
            Identity::Token { expires_at, .. } => *expires_at,
            Identity::Certificate(shown) => Some(shown.expires_at),
            Identity::Claims(found) => Some(found.expires_at),
        }
    }

    /// Fails if the credential would be refused now.
    fn is_still_known(&self, api: &Api, snapshot: &AccessSnapshot) -> Result<(), ApiError> {
        let credentials = &api.0.credentials;
        let is_over = self.expires_at().is_some_and(|end| end <= wall());
        let why = match self {
            Identity::Local if !credentials.need_none() => {
                "no credentials were sent, and a token is required now"
            }
            Identity::Admin(digest) if !credentials.is_admin(digest) => {
                "the coordinator's own token has changed"
            }
            Identity::Token { name, digest, .. } => {
                let known = snapshot.access.tokens.get(name);
                match known.is_some_and(|stored| stored.token.digest == *digest) && !is_over {
                    true => return Ok(()),
                    false => "the token has expired or was revoked",
                }
            }
            Identity::Certificate(shown) if !shown.is_good() => {
                "the certificate has expired, or its authority is no longer trusted for users"
            }
            Identity::Claims(_) if is_over => {
                "the token has expired: get a new one from the issuer"
            }
            Identity::Local
            | Identity::Admin(_)
            | Identity::Certificate(_)
            | Identity::Claims(_) => return Ok(()),
        };
        Err(ApiError::Unauthorized { why })
    }
}

/// A caller with its rights. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Caller(Arc<CallerInner>);

#[derive(Debug)]
struct CallerInner {
    who: Identity,
    from: String,
    /// Granted roles; `None` is everything.
    rights: Option<CallerAccess>,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // The check sets the caller of every admitted call.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or(ApiError::Unauthorized {
            why: "the caller was not authenticated",
        })
    }
}

impl Caller {
    /// Makes a caller with the rights that `book` gives to the identity.
    pub(super) fn new(who: Identity, from: String, snapshot: &AccessSnapshot) -> Self {
        let rights = CallerAccess::of(&who, snapshot);
        Self(Arc::new(CallerInner { who, from, rights }))
    }

    pub(super) fn who(&self) -> &Identity {
        &self.0.who
    }

    /// Returns the text to which idempotency keys are bound: the same for the same caller and for no other. Kinds of
    /// credentials have different prefixes, and the name is complete, unlike where it is shown.
    pub(super) fn binding(&self) -> String {
        match &self.0.who {
            Identity::Claims(found) => format!("claims/{}", found.name),
            who => who.to_string(),
        }
    }

    pub(super) fn is_unbounded(&self) -> bool {
        self.0.rights.is_none()
    }

    /// Lists the caller's grants; none if he has every right.
    pub(super) fn grants(&self) -> impl Iterator<Item = &RoleGrant> {
        self.roles().map(|(grant, _)| grant)
    }

    /// Lists the caller's grants with the roles that they give.
    fn roles(&self) -> impl Iterator<Item = (&RoleGrant, &RoleSpec)> {
        let rights = self.0.rights.iter().flat_map(|rights| &rights.granted);
        rights.map(|(grant, role)| (grant, role))
    }

    /// Lists the subjects of bindings that the caller has no name for.
    pub(super) fn unfilled(&self) -> &[MissingSubject] {
        let rights = self.0.rights.as_ref();
        rights.map_or(&[], |rights| &rights.unfilled)
    }

    /// Returns the same caller with the rights of this moment, for calls that last long.
    pub(super) fn with_present_rights(&self, api: &Api) -> Result<Self, ApiError> {
        let snapshot = api.engine().access_snapshot();
        self.0.who.is_still_known(api, &snapshot)?;
        Ok(Self::new(
            self.0.who.clone(),
            self.0.from.clone(),
            &snapshot,
        ))
    }

    pub(super) fn has_rights_of(&self, other: &Self) -> bool {
        self.0.rights == other.0.rights
    }

    pub(super) fn judge(&self, query: &AccessQuery<'_>) -> Decision {
        match &self.0.rights {
            None => Decision::Allowed,
            Some(_) => decide(self.roles(), query),
        }
    }

    pub(super) fn may(&self, verb: Verb, resource: Resource, pool: Scope, subject: Scope) -> bool {
        let query = AccessQuery {
            verb,
            resource,
            pool,
            subject,
        };
        self.judge(&query) == Decision::Allowed
    }

    /// Whether the caller has a right on a step of this subject, in this pool.
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

    pub(super) fn lists(&self, core: &Core, step: &Step) -> bool {
        self.is_unbounded() || self.lists_of(&step.spec.subject, core.state().pool_of(step))
    }

    /// Whether lists contain the steps of a subject in a pool.
    pub(super) fn lists_of(&self, subject: &Subject, pool: Option<&PoolName>) -> bool {
        let pool = pool.map(PoolName::as_str);
        self.may_step(Verb::List, Resource::Steps, subject.as_str(), pool)
    }

    /// Whether lists contain what is in a pool for the caller: the pool itself, or a node of it.
    pub(super) fn may_list_in(&self, resource: Resource, pool: &PoolName) -> bool {
        let pool = Scope::One(pool.as_str());
        self.may(Verb::List, resource, pool, Scope::Unscoped)
    }

    /// Whether lists contain a thing that may belong to no pool; such a thing is shown to callers who may see those of
    /// all pools.
    pub(super) fn may_list_by(&self, resource: Resource, pool: Option<&PoolName>) -> bool {
        match pool {
            Some(pool) => self.may_list_in(resource, pool),
            None => self.may(Verb::List, resource, Scope::Every, Scope::Unscoped),
        }
    }

    pub(super) fn may_list_policy(&self, pool: &PoolName, subject: &Subject) -> bool {
        let (pool, subject) = (Scope::One(pool.as_str()), Scope::One(subject.as_str()));
        self.may(Verb::List, Resource::Policies, pool, subject)
    }

    /// Hides the values of a step's environment, unless the caller has the right to see them.
    pub(super) fn seen(&self, mut view: StepView) -> StepView {
        let pool = view.pool.as_deref();
        if !self.may_step(Verb::Get, Resource::StepEnv, &view.subject, pool) {
            hide(&mut view);
        }
        view
    }

    /// Hides the details of a refusal from a caller who may not see the step: only that its id is in use.
    pub(super) fn masked_refusal(&self, core: &Core, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::IdInUse { step, .. }
                if !core
                    .state()
                    .find(&step)
                    .is_some_and(|it| self.lists(core, &it)) =>
            {
                let differs = "subject".to_owned();
                Refusal::IdInUse { step, differs }
            }
            refusal => refusal,
        }
    }

    pub(super) fn require(
        &self,
        query: &AccessQuery<'_>,
        name: Option<&str>,
    ) -> Result<(), ApiError> {
        match self.judge(query) {
            Decision::Allowed => Ok(()),
            verdict => Err(self.refusal(query, name, &verdict)),
        }
    }

    /// Returns the error with the missing right, and the roles that would give it.
    pub(super) fn refusal(
        &self,
        query: &AccessQuery<'_>,
        name: Option<&str>,
        verdict: &Decision,
    ) -> ApiError {
        let denied = match verdict {
            Decision::Denied(role) => Some(role.clone()),
            Decision::Allowed | Decision::NotGranted => None,
        };
        ApiError::Forbidden {
            who: self.0.who.to_string().into(),
            verb: query.verb,
            resource: query.resource,
            name: name.map(shown),
            place: place_of(query).into(),
            denied,
            roles: roles_granting(query),
            unfilled: self.unfilled_for(query).map(Box::new),
        }
    }

    /// Names a binding's subject that would give the right, if the caller had a name for it.
    fn unfilled_for(&self, query: &AccessQuery<'_>) -> Option<MissingSubject> {
        let rights = self.0.rights.as_ref()?;
        let gives =
            |it: &&MissingSubject| it.roles.iter().any(|role| rights.would_give(role, query));
        self.unfilled().iter().find(gives).cloned()
    }

    /// Fails if the caller would give away more than he has: a role that he lacks, more pools or subjects, or without a
    /// role that denies him something.
    pub(super) fn check_grants(&self, grants: &[RoleGrant]) -> Result<(), ApiError> {
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
        // If all grants are held, the denying ones are too.
        let is_given = |own: &RoleGrant| grants.iter().any(|given| given.role == own.role);
        match self.denying().find(|own| !is_given(own)) {
            None => Ok(()),
            Some(RoleGrant { role, .. }) => {
                let role = role.clone();
                Err(ApiError::GivesPast { who, role })
            }
        }
    }

    /// Fails if the token would name another user, because a step may run as the user who submitted it.
    pub(super) fn check_token_user(&self, user: Option<&UserName>) -> Result<(), ApiError> {
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

    fn denying(&self) -> impl Iterator<Item = &RoleGrant> {
        let denies = |role: &RoleSpec| role.rules.iter().any(|rule| rule.effect == Effect::Deny);
        self.roles()
            .filter_map(move |(grant, role)| denies(role).then_some(grant))
    }

    pub(super) fn is_admin(&self) -> bool {
        let may = |(verb, resource): (&Verb, &Resource)| {
            self.may(*verb, *resource, Scope::Every, Scope::Every)
        };
        let all = |verb| Resource::ALL.iter().map(move |resource| (verb, resource));
        self.is_unbounded() || Verb::ALL.iter().flat_map(all).all(may)
    }

    pub(super) fn require_admin(
        &self,
        query: &AccessQuery<'_>,
        name: Option<&str>,
    ) -> Result<(), ApiError> {
        match self.is_admin() {
            true => Ok(()),
            false => Err(self.refusal(query, name, &Decision::NotGranted)),
        }
    }

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

/// Returns a name from a call for messages: cut, without tokens and without control characters.
pub(super) fn shown(name: &str) -> String {
    let masked_refusal = masked(name);
    let chars = masked_refusal.chars().take(MAX_AUDITED_CHARS);
    chars.flat_map(char::escape_debug).collect()
}

/// Hides the values of a step's own variables, alone and merged with templates. Variables of templates are shown,
/// because templates can be read.
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

/// Names the pool and the subject that the caller gave.
fn place_of(query: &AccessQuery<'_>) -> String {
    let named = |what, at| match at {
        Scope::One(name) => format!(" {what} `{}`", shown(name)),
        Scope::Every | Scope::Any | Scope::Unscoped => String::new(),
    };
    let submits = (query.verb, query.resource) == (Verb::Create, Resource::Steps);
    let pool = match query.pool {
        Scope::Every if submits => {
            " that name no pool and could run in any (name one of yours with `--pool`)".to_owned()
        }
        pool => named("in pool", pool),
    };
    pool + &named("of subject", query.subject)
}

/// Lists the built-in roles that would give a right, the least powerful first.
fn roles_granting(query: &AccessQuery<'_>) -> Vec<RoleName> {
    let least_first = ["viewer", "submitter", "operator", "admin"];
    let of_pool = match query.pool {
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
            decide(std::iter::once((&grant, &terms)), query) == Decision::Allowed
        })
    };
    roles.filter(gives).collect()
}

pub(super) fn pool_of_node(core: &Core, node: &str) -> Option<PoolName> {
    let node = NodeName::new(node).ok()?;
    core.state().node(&node).map(|node| node.pool.clone())
}
