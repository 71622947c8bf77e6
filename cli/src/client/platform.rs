//! Calls about the platforms of pools.

use sluice_common::api::PlatformView;

use super::{ApiError, Client, Query, segment};

impl Client {
    pub(crate) fn platform(&self, pool: &str, platform: &str) -> Result<PlatformView, ApiError> {
        let (pool, platform) = (segment(pool), segment(platform));
        let path = format!("/v1/pools/{pool}/platforms/{platform}");
        self.get(&path, &Query::new())
    }
}
