//! Lists of services and of their endpoints.

use sluice_common::api::{EndpointView, ErrorView, ServiceView};

use super::kinds::Gettable;
use crate::args::GetArgs;
use crate::client::{ApiError, Client};
use crate::render::safe;

impl Gettable for ServiceView {
    fn known(client: &Client) -> Vec<String> {
        let services = client.services().unwrap_or_default();
        services.into_iter().map(|service| service.name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let mut services = client.services()?;
        services.retain(|service| service.fits(args));
        Ok(services)
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.service(name)
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let is = |wanted: &Option<String>, has: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| has == Some(wanted))
        };
        is(&args.pool, self.pool.as_ref()) && is(&args.subject, Some(&self.subject))
    }
}

impl Gettable for EndpointView {
    fn known(client: &Client) -> Vec<String> {
        let endpoints = client.endpoints(None).unwrap_or_default();
        endpoints.into_iter().map(|it| it.replica).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let mut endpoints = client.endpoints(None)?;
        endpoints.retain(|endpoint| endpoint.fits(args));
        Ok(endpoints)
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        let found = client
            .endpoints(None)?
            .into_iter()
            .find(|it| it.replica == name);
        found.ok_or_else(|| ApiError::Refused {
            status: 404,
            error: ErrorView {
                code: "unknown_step".into(),
                message: format!("`{}` is no replica that is ready", safe(name)),
                detail: Default::default(),
            },
        })
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let subject = args.subject.as_ref();
        subject.is_none_or(|subject| *subject == self.subject)
    }
}
