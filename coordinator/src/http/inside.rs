//! Submits of steps inside allocations: whose they are, and who may submit them.

use coordinator_core::{NewStep, Refusal};
use sluice_common::access::{AccessQuery, Resource, Scope, Verb};
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{PoolName, StepId};
use sluice_common::request::{FieldError, StepRequest};

use super::Api;
use super::access::Caller;
use super::error::ApiError;

/// The allocation inside which a step is to run.
pub(super) struct Allocation {
    pool: Option<PoolName>,
}

impl Allocation {
    /// Finds the allocation of a request, whose subject the step gets if it names none; `None` if it names no allocation, or
    /// no well-formed id, which is refused later.
    ///
    /// # Errors
    /// There is no such step that the caller may see.
    pub(super) async fn of(
        api: &Api,
        caller: &Caller,
        request: &mut StepRequest,
    ) -> Result<Option<Self>, ApiError> {
        let id = request.inside.as_ref().map(|id| StepId::new(id.as_str()));
        let Some(Ok(id)) = id else {
            return Ok(None);
        };
        let who = caller.clone();
        let found = api.engine().read(move |core| {
            let known = core.state().find(&id);
            let known = known.filter(|known| who.lists(core, known));
            let found = known.map(|known| {
                let pool = core.state().pool_of(&known).cloned();
                (known.spec.subject.to_string(), pool)
            });
            found.ok_or(Refusal::UnknownStep { step: id })
        });
        let (subject, pool) = found.await??;
        let defaults = request.defaults.as_ref();
        if defaults.is_none_or(|below| below.subject.is_none()) {
            request.subject.get_or_insert(subject);
        }
        Ok(Some(Self { pool }))
    }

    /// Sets the submitter of a step inside it, and fails if the caller may not submit steps there, or not run programs in
    /// those of its subject.
    pub(super) fn permit(&self, caller: &Caller, step: &mut NewStep) -> Result<(), ApiError> {
        step.spec.submitted_by = caller.who().user();
        let pool = self.pool.as_ref();
        let pool = pool.map_or(Scope::Every, |pool| Scope::One(pool.as_str()));
        let subject = Scope::One(step.spec.subject.as_str());
        for resource in [Resource::Steps, Resource::StepExec] {
            let ask = AccessQuery {
                verb: Verb::Create,
                resource,
                pool,
                subject,
            };
            caller.require(&ask, None)?;
        }
        Ok(())
    }
}

/// Refuses to preview a step inside an allocation: a preview asks the scheduler, which does not know what is inside.
pub(super) fn refuse_preview(request: &StepRequest) -> Result<(), ApiError> {
    if request.inside.is_none() {
        return Ok(());
    }
    let why = "a step inside an allocation is not previewed: leave out `dry_run`";
    Err(FieldError::new(ErrorCode::UnsupportedField, "inside", why).into())
}
