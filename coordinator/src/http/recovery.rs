//! Reads a recovery, or ends it by hand. The core decides when one begins and what is adopted.

use axum::Json;
use axum::extract::State;
use coordinator_core::{Core, Input, RecoveryCause};
use sluice_common::api::{RecoveryView, timestamp};

use super::Api;
use super::error::ApiError;
use super::params::NoParams;

/// Returns the state of the recovery, or that there is none.
pub(super) fn view(core: &Core) -> RecoveryView {
    let Some(recovery) = core.state().recovery() else {
        return RecoveryView::default();
    };
    let why = match recovery.why {
        RecoveryCause::Restored => "restored",
        RecoveryCause::StoreLost => "store_lost",
        RecoveryCause::LaterEpoch => "later_epoch",
    };
    RecoveryView {
        recovering: true,
        why: Some(why.to_owned()),
        since: Some(timestamp(recovery.since)),
        until: Some(timestamp(core.recovery_lasts_until())),
        unreported: core.unreported().map(ToString::to_string).collect(),
    }
}

/// Handles `GET /v1/recovery`.
pub(super) async fn get(
    State(api): State<Api>,
    _: NoParams,
) -> Result<Json<RecoveryView>, ApiError> {
    Ok(Json(api.engine().read(view).await?))
}

/// Handles `DELETE /v1/recovery`: ends it now.
pub(super) async fn end(
    State(api): State<Api>,
    _: NoParams,
) -> Result<Json<RecoveryView>, ApiError> {
    let input = |reply| Input::EndRecovery { reply };
    let ended = api
        .engine()
        .change(input, |core, ended| ended.map(|()| view(core)));
    Ok(Json(ended.await??))
}
