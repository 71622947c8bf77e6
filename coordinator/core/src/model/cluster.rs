//! Stored terms of the whole cluster, and the route that they gave a step.

use serde::{Deserialize, Serialize};

use sluice_common::cluster::ClusterSpec;
use sluice_common::id::{PoolName, Subject};
use sluice_common::shared::SharedDefault;
use sluice_scheduler::Request;

/// The terms of the cluster, with their version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub terms: ClusterSpec,
    /// Number of the record that set them last; 0 if none did.
    pub version: u64,
}

/// The route that the cluster's defaults gave a step when it was submitted, or that a caller gave it by a move. It
/// stays when the defaults change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Route {
    /// The only pool that the step may run in, whatever its spec names; absent if the step named one, or if its
    /// policies choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// The subject whose policy it uses, if that is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
}

impl SharedDefault for Route {
    fn default_ref() -> &'static Self {
        static DEFAULT: Route = Route {
            pool: None,
            subject: None,
        };
        &DEFAULT
    }
}

impl Route {
    /// Whether the cluster's defaults gave no route.
    pub fn is_empty(&self) -> bool {
        self.pool.is_none() && self.subject.is_none()
    }

    /// Returns a request with this route.
    pub(crate) fn send(&self, mut request: Request) -> Request {
        request.pool = self.pool.clone().or(request.pool);
        if let Some(subject) = &self.subject {
            request.subject = subject.clone();
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use sluice_common::shared::Shared;

    use super::Route;
    use crate::model::template::Provenance;

    #[test]
    fn the_shared_defaults_are_those_of_the_types() {
        assert_eq!(*Shared::<Route>::default(), Route::default());
        assert_eq!(*Shared::<Provenance>::default(), Provenance::default());
    }
}
