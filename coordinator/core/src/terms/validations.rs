//! Validation documents: stored by name, named by pools, and checked for each submitted step with everything filled
//! in. [`sluice_common::validation`] defines assertions; `submit/validation.rs` checks steps. A changed document does
//! not affect steps that are queued or running.

use alloc::string::String;

use sluice_common::id::ValidationName;
use sluice_common::nearest::nearest;
use sluice_common::validation::ValidationSpec;

use crate::context::Context;
use crate::input::{Desired, TermsChange};
use crate::output::{CurrentTerms, Refusal, Refused};
use crate::record::Record;
use crate::terms::targets::pool_of;

pub(crate) fn validation_terms(
    ctx: &Context,
    name: &ValidationName,
) -> Option<(CurrentTerms, u64)> {
    let known = ctx.state().validations().get(name)?;
    Some((CurrentTerms::Validation(known.terms.clone()), known.version))
}

pub(crate) fn put_validation(ctx: &mut Context, name: &ValidationName, terms: &ValidationSpec) {
    let (validation, terms) = (name.clone(), terms.clone());
    ctx.record(Record::ValidationPut { validation, terms });
}

pub(crate) fn delete_validation(ctx: &mut Context, name: &ValidationName) -> Result<(), Refusal> {
    let validation = name.clone();
    if !ctx.state().validations().contains_key(name) {
        return Err(Refusal::UnknownValidation { validation });
    }
    ctx.record(Record::ValidationDeleted { validation });
    Ok(())
}

/// Checks that every validation that a pool names exists, once all changes are made.
pub(crate) fn check_validations(ctx: &Context, changes: &[TermsChange]) -> Result<(), Refused> {
    let known = ctx.state().validations();
    let pools = ctx.state().pools().values();
    let mut named = pools.flat_map(|pool| {
        let own = pool.spec.validations.iter().map(|name| (None, name));
        let platforms = pool.platforms.iter();
        let theirs = platforms.flat_map(|(platform, it)| {
            let names = it.terms.validations.iter();
            names.map(move |name| (Some(platform), name))
        });
        let all = own.chain(theirs);
        all.map(|(platform, name)| (&pool.name, platform, name))
    });
    let missing = named.find(|(_, _, name)| !known.contains_key(*name));
    let Some((pool, platform, validation)) = missing else {
        return Ok(());
    };
    let deletes = |change: &TermsChange| matches!(&change.desired, Desired::NoValidation { validation: deleted } if deleted == validation);
    let is_platform = |change: &TermsChange| matches!(&change.desired, Desired::Platform { pool: of, platform: it, .. } if of == pool && Some(it) == platform);
    let names = |change: &TermsChange| pool_of(&change.desired) == Some(pool);
    let deleted_by = changes.iter().position(deletes);
    let at = deleted_by.or_else(|| changes.iter().position(is_platform));
    let at = at.or_else(|| changes.iter().position(names));
    let near = nearest(
        validation.as_str(),
        known.keys().map(ValidationName::as_str),
    );
    let refusal = Refusal::PoolNamesValidation {
        validation: validation.clone(),
        pool: pool.clone(),
        platform: platform.cloned(),
        is_deleted: deleted_by.is_some(),
        nearest: near.filter(|_| deleted_by.is_none()).map(String::from),
    };
    Err(Refused { at, refusal })
}
