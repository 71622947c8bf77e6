//! The HTTP API: translates calls into calls of the engine, and answers into JSON.
//!
//! Every error has one shape and a stable code ([`error::ApiError`] lists all); callers never see texts of the HTTP
//! framework. Bodies are bounded before they are parsed. Calls that need no decision, such as events and the output of
//! steps, bypass the engine: they read the store and the agents.

mod access;
mod admin;
mod allocations;
mod api;
mod api_tokens;
mod auth;
mod body;
mod call_metrics;
mod cluster;
mod connections;
pub mod error;
mod etag;
mod events;
mod exec;
mod explain;
mod followers;
mod health;
mod ids;
mod inputs;
mod inside;
mod join_tokens;
mod limits;
mod logs;
mod masked;
mod metrics;
mod nodes;
mod oidc;
mod openapi;
mod page;
mod params;
mod platforms;
mod pools;
mod put;
mod random;
mod recovery;
mod remedy_searches;
mod roles;
mod services;
mod step_move;
mod steps;
mod submit;
mod templates;
mod terms;
#[cfg(test)]
mod tests;
mod topology;
mod validations;
mod verbs;
mod whoami;

use axum::Router;
use axum::http::{Method, Uri};
use axum::middleware;
use axum::routing::{delete, get, patch, post};
use coordinator_core::StepAction;
use tokio::net::TcpListener;

pub use api::{Api, PublicAccess, TrustedIssuer};
pub use connections::Tls;
use error::ApiError;
pub use oidc::KeysError;

/// Serves the API on `listener` until `api` is stopped; then finishes the calls that are under way.
pub async fn serve(listener: TcpListener, tls: Tls, api: Api) {
    connections::serve(listener, tls, api.clone(), router(api)).await;
}

fn router(api: Api) -> Router {
    Router::new()
        .merge(steps_routes())
        .merge(hosts_routes())
        .merge(terms_routes())
        .merge(rights_routes())
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::openapi))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(api.clone(), auth::check))
        .layer(middleware::from_fn_with_state(
            api.calls().clone(),
            call_metrics::count,
        ))
        .with_state(api)
}

/// Routes of steps and events.
fn steps_routes() -> Router<Api> {
    Router::new()
        .route("/v1/steps", get(steps::list).post(submit::one))
        .route("/v1/steps:batch", post(submit::batch))
        .route("/v1/steps:cancel", post(steps::cancel_many))
        .route("/v1/steps:suspend", steps::act_on_many(StepAction::Suspend))
        .route("/v1/steps:resume", steps::act_on_many(StepAction::Resume))
        .route("/v1/steps:requeue", steps::act_on_many(StepAction::Requeue))
        .route("/v1/steps:delete", steps::act_on_many(StepAction::Delete))
        .route(
            "/v1/steps/{step}",
            get(steps::get)
                .post(steps::act)
                .delete(steps::delete)
                .fallback(steps::no_method),
        )
        .route(
            "/v1/allocations",
            get(steps::list_allocations).post(submit::allocate),
        )
        .route(
            "/v1/allocations/{step}",
            get(allocations::get)
                .post(allocations::act)
                .fallback(allocations::no_method),
        )
        .route("/v1/services", get(services::list))
        .route(
            "/v1/services/{service}",
            get(services::get)
                .put(services::put)
                .post(services::act)
                .delete(services::delete)
                .fallback(services::no_method),
        )
        .route("/v1/endpoints", get(services::endpoints))
        .route("/v1/steps/{step}/explain", get(explain::explain))
        .route("/v1/steps/{step}/logs", get(logs::logs))
        .route("/v1/steps/{step}/exec", get(exec::exec))
        .route("/v1/steps/{step}/input", get(exec::input))
        .route("/v1/steps/{step}/ports/{port}", get(exec::port))
        .route("/v1/inputs/{sha256}", get(inputs::get).put(inputs::put))
        .route("/v1/events", get(events::events))
}

/// Routes of hosts and join tokens.
fn hosts_routes() -> Router<Api> {
    Router::new()
        .route("/v1/nodes", get(nodes::list))
        .route(
            "/v1/nodes/{node}",
            get(nodes::get)
                .post(admin::act)
                .delete(admin::delete)
                .fallback(admin::no_method),
        )
        .route("/v1/nodes/{node}/labels", patch(admin::label))
        .route(
            "/v1/join-tokens",
            get(join_tokens::list).post(join_tokens::make),
        )
        .route("/v1/join-tokens/{id}", delete(join_tokens::revoke))
        .route("/v1/recovery", get(recovery::get).delete(recovery::end))
}

/// Routes of pools, policies and documents.
fn terms_routes() -> Router<Api> {
    Router::new()
        .route("/v1/pools", get(nodes::list_pools))
        .route(
            "/v1/pools/{pool}",
            get(nodes::get_pool)
                .put(terms::put_pool)
                .delete(terms::delete_pool),
        )
        .route("/v1/pools/{pool}/queue", get(pools::queue))
        .route("/v1/pools/{pool}/policies", get(pools::policies))
        .route(
            "/v1/pools/{pool}/policies/{subject}",
            get(pools::policy)
                .put(terms::put_policy)
                .delete(terms::delete_policy),
        )
        .route("/v1/pools/{pool}/platforms", get(platforms::list))
        .route(
            "/v1/pools/{pool}/platforms/{platform}",
            get(platforms::get)
                .put(platforms::put)
                .delete(platforms::remove),
        )
        .route("/v1/templates", get(templates::list))
        .route(
            "/v1/templates/{template}",
            get(templates::get)
                .put(templates::put)
                .delete(templates::delete),
        )
        .route("/v1/cluster", get(cluster::get).put(cluster::put))
        .route("/v1/topology", get(topology::get).put(topology::put))
        .route("/v1/validations", get(validations::list))
        .route(
            "/v1/validations/{validation}",
            get(validations::get)
                .put(validations::put)
                .delete(validations::delete),
        )
        .route("/v1/apply", post(terms::apply))
}

/// Routes of roles, bindings and API tokens.
fn rights_routes() -> Router<Api> {
    Router::new()
        .route("/v1/roles", get(roles::list))
        .route("/v1/roles/{role}", get(roles::get))
        .route("/v1/bindings", get(roles::list_bindings))
        .route("/v1/bindings/{binding}", get(roles::get_binding))
        .route("/v1/whoami", get(whoami::whoami))
        .route("/v1/can-i", get(whoami::can_i))
        .route(
            "/v1/api-tokens",
            get(api_tokens::list).post(api_tokens::create),
        )
        .route(
            "/v1/api-tokens/{api_token}",
            get(api_tokens::get).delete(api_tokens::revoke),
        )
}

async fn unknown_route(uri: Uri) -> ApiError {
    ApiError::UnknownRoute {
        path: uri.path().to_owned(),
    }
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::MethodNotAllowed {
        method: method.to_string(),
        path: uri.path().to_owned(),
        // The router sets the header.
        allow: None,
    }
}
