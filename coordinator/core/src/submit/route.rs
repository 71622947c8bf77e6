//! Routes steps that name no pool: by the cluster's defaults, a subject's own before those of all, each for steps
//! with and without GPUs. There a step uses its subject's policy, or else that of the subject `default`. A subject
//! that may not use the default pool keeps its own policies.

use sluice_common::amount::MGPU;
use sluice_common::id::{PoolName, Subject};
use sluice_common::step::StepSpec;

use crate::context::Context;
use crate::model::cluster::Route;
use crate::model::step::default_subject;

/// The route that the cluster's defaults give a step.
pub(crate) fn route_of(ctx: &Context, spec: &StepSpec) -> Route {
    let terms = &ctx.state().cluster().terms;
    let default = terms.pool_of(&spec.subject, spec.request.get(MGPU) > 0);
    match (&spec.pool, default) {
        (None, Some(pool)) if goes_by_its_policies(ctx, spec, pool) => Route::default(),
        (None, Some(pool)) => Route {
            pool: Some(pool.clone()),
            subject: lender(ctx, &spec.subject, pool),
        },
        (Some(named), Some(pool)) if named == pool => Route {
            pool: None,
            subject: lender(ctx, &spec.subject, pool),
        },
        (Some(_), _) | (None, None) => Route::default(),
    }
}

/// Whether a step's own policies choose its pool: the default pool admits it neither by its own subject's policy nor
/// by that of `default`, and its subject has a policy elsewhere.
fn goes_by_its_policies(ctx: &Context, spec: &StepSpec, pool: &PoolName) -> bool {
    let subject = &spec.subject;
    let sent = ctx.state().cluster().terms.subjects.get(subject);
    let sent = sent.and_then(|defaults| defaults.pool_of(spec.request.get(MGPU) > 0));
    let may = |pool: &PoolName| has_policy(ctx, pool, subject);
    let mut pools = ctx.state().pools().keys();
    let lets_in = may(pool) || lender(ctx, subject, pool).is_some();
    sent.is_none() && !lets_in && pools.any(may)
}

/// The subject `default` in its default pool, if the step's own subject has no policy there.
fn lender(ctx: &Context, subject: &Subject, pool: &PoolName) -> Option<Subject> {
    let lent = default_subject();
    let lends = !has_policy(ctx, pool, subject) && has_policy(ctx, pool, &lent);
    lends.then_some(lent)
}

fn has_policy(ctx: &Context, pool: &PoolName, subject: &Subject) -> bool {
    let pool = ctx.state().scheduler().pool(pool);
    pool.is_some_and(|it| it.policy(subject).is_some())
}
