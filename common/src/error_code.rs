//! The codes of errors that the HTTP API answers with: a closed list, each with its status and its meaning. The
//! coordinator answers with them, `docs/troubleshooting.md` and the API's own description show them, tests compare the three.

use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $status:literal;)*) => {
        /// A stable error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)*
        }

        impl ErrorCode {
            /// Every code there is.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            /// The code as the API writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $text,)*
                }
            }

            /// The HTTP status that it comes with.
            pub const fn status(self) -> u16 {
                match self {
                    $(ErrorCode::$variant => $status,)*
                }
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => concat!($($doc),+).trim(),)*
                }
            }
        }
    };
}

codes! {
    /// The body is not JSON, or a field has a value of the wrong type.
    InvalidBody = "invalid_body", 400;
    /// The body has a field that does not exist.
    UnknownField = "unknown_field", 400;
    /// The call has a parameter that does not exist.
    UnknownParameter = "unknown_parameter", 400;
    /// A parameter has a value that it cannot have.
    InvalidParameter = "invalid_parameter", 400;
    /// The header `Idempotency-Key` is empty, too long or holds what cannot be shown.
    InvalidIdempotencyKey = "invalid_idempotency_key", 400;
    /// A batch has more steps than one commit takes.
    TooManySteps = "too_many_steps", 400;
    /// The document is of another kind than the call takes.
    InvalidKind = "invalid_kind", 400;
    /// The id of a step is not well-formed.
    InvalidId = "invalid_id", 400;
    /// The name of a step is empty or too long, or that of a document is not well-formed.
    InvalidName = "invalid_name", 400;
    /// The subject is not a well-formed name.
    InvalidSubject = "invalid_subject", 400;
    /// The pool is not a well-formed name.
    InvalidPool = "invalid_pool", 400;
    /// The command is empty or holds a NUL byte.
    InvalidCommand = "invalid_command", 400;
    /// A variable of the environment has a name or value that no process can be given.
    InvalidEnv = "invalid_env", 400;
    /// A variable of the environment has a name that Sluice sets itself.
    ReservedEnv = "reserved_env", 400;
    /// The working directory is not an absolute path.
    InvalidWorkdir = "invalid_workdir", 400;
    /// Command, environment and working directory are larger than a process can be given.
    TooLarge = "too_large", 400;
    /// The number of hosts is not one that a step can have.
    InvalidNodes = "invalid_nodes", 400;
    /// A length of time cannot be read, or is not one that the field can have.
    InvalidDuration = "invalid_duration", 400;
    /// No capability of a node has this name.
    InvalidCapability = "invalid_capability", 400;
    /// An amount is larger than can be counted.
    InvalidAmount = "invalid_amount", 400;
    /// The number of cores is negative, not a number or too large.
    InvalidCpuCount = "invalid_cpu_count", 400;
    /// The amount of memory cannot be read.
    InvalidMemory = "invalid_memory", 400;
    /// The key of a resource is not well-formed.
    InvalidResourceKey = "invalid_resource_key", 400;
    /// The key or the value of a label is not well-formed.
    InvalidLabel = "invalid_label", 400;
    /// The reason is too long.
    InvalidReason = "invalid_reason", 400;
    /// An assertion of a validation cannot be read.
    InvalidAssertion = "invalid_assertion", 400;
    /// The field belongs to something that does not exist yet.
    UnsupportedField = "unsupported_field", 400;
    /// Two fields say what cannot both be.
    Contradiction = "contradiction", 400;
    /// The call shows nothing by which the coordinator knows the caller, or what was revoked or has expired.
    Unauthorized = "unauthorized", 401;
    /// A web page of another site is behind the call.
    ForeignOrigin = "foreign_origin", 403;
    /// No call has this path.
    UnknownRoute = "unknown_route", 404;
    /// No step has this id, or it ended so long ago that it is forgotten.
    UnknownStep = "unknown_step", 404;
    /// The step has no attempt of this number.
    UnknownAttempt = "unknown_attempt", 404;
    /// No node has this name.
    UnknownNode = "unknown_node", 404;
    /// The node has no such GPU.
    UnknownGpu = "unknown_gpu", 404;
    /// No pool has this name.
    UnknownPool = "unknown_pool", 404;
    /// The subject has no policy in the pool.
    UnknownPolicy = "unknown_policy", 404;
    /// No validation has this name.
    UnknownValidation = "unknown_validation", 404;
    /// The node that ran the step no longer has its output.
    OutputUnavailable = "output_unavailable", 404;
    /// The path exists and takes other methods, which the header `Allow` names.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The id belongs to a step that was submitted with another body.
    IdInUse = "id_in_use", 409;
    /// The node is linked: it is deleted by force alone.
    NodeLinked = "node_linked", 409;
    /// The node is away and may still run steps.
    NodeHoldsSteps = "node_holds_steps", 409;
    /// The node would have more labels than one may have.
    TooManyLabels = "too_many_labels", 409;
    /// The thing was changed since whoever asks has looked, or is there though it must not be.
    VersionConflict = "version_conflict", 412;
    /// Two changes of one call are of one thing.
    NamedTwice = "named_twice", 400;
    /// Somebody uses what the change takes away.
    InUse = "in_use", 409;
    /// Hosts are in the pool that is to be deleted.
    PoolHasNodes = "pool_has_nodes", 409;
    /// The pool of nodes and steps that name none cannot be deleted.
    PoolIsDefault = "pool_is_default", 409;
    /// The pool cannot keep the policy beside what it has and what others are promised.
    InvalidPolicy = "invalid_policy", 409;
    /// The events that were asked for are no longer kept.
    EventsGone = "events_gone", 410;
    /// The body is larger than is read.
    BodyTooLarge = "body_too_large", 413;
    /// Less output was written than the offset skips.
    OffsetBeyondEnd = "offset_beyond_end", 416;
    /// The coordinator failed.
    Internal = "internal", 500;
    /// The node that has the output, or the GPU that is to be looked at, is not linked now.
    NodeUnreachable = "node_unreachable", 503;
    /// The coordinator is stopping, and whether the call took place is unknown.
    Stopping = "stopping", 503;
    /// The coordinator's disk is nearly full, and nothing new is accepted until there is room again.
    DiskFull = "disk_full", 507;
    /// The step is over.
    StepOver = "step_over", 409;
    /// The step runs on several hosts at once and cannot be frozen.
    CannotSuspend = "cannot_suspend", 409;
    /// The platforms are not well-formed names.
    InvalidPlatform = "invalid_platform", 400;
    /// The pool is in maintenance, its caller is no admin of it, and the step may run in no other.
    PoolInMaintenance = "pool_in_maintenance", 409;
    /// The terms of the cluster name a pool that would not be there.
    ClusterNamesPool = "cluster_names_pool", 409;
    /// A pool names a validation that would not be there.
    PoolNamesValidation = "pool_names_validation", 409;
    /// The step does not run now, so nothing can run beside it.
    NotRunning = "not_running", 409;
    /// The pool has no such platform: it declares none of this name, and no host of it is of one.
    UnknownPlatform = "unknown_platform", 404;
    /// The platform that is to be the default of its pool would not be there.
    DefaultPlatformMissing = "default_platform_missing", 409;
    /// The pool would declare more platforms than one may.
    TooManyPlatforms = "too_many_platforms", 409;
    /// Labels that begin with `sluice/` are facts, which nobody sets.
    ReservedLabel = "reserved_label", 400;
    /// The name of a template is not well-formed, or a field of one holds what it may not.
    InvalidTemplate = "invalid_template", 400;
    /// A `{{...}}` of a template names what is not on the list of variables, or has no other half.
    InvalidVariable = "invalid_variable", 400;
    /// A mount is not one of two absolute paths.
    InvalidMount = "invalid_mount", 400;
    /// The amount of disk space cannot be read.
    InvalidStorage = "invalid_storage", 400;
    /// No template has this name.
    UnknownTemplate = "unknown_template", 404;
    /// A pool names a template that would not be there.
    PoolNamesTemplate = "pool_names_template", 409;
    /// The caller has no right to this, or a rule takes it away; whether the thing exists is not told.
    Forbidden = "forbidden", 403;
    /// A role, a binding or a token is not one that can be.
    InvalidAccess = "invalid_access", 400;
    /// No role has this name.
    UnknownRole = "unknown_role", 404;
    /// No binding has this name.
    UnknownBinding = "unknown_binding", 404;
    /// No API token has this name.
    UnknownApiToken = "unknown_api_token", 404;
    /// An API token has this name already.
    ApiTokenExists = "api_token_exists", 409;
    /// There are as many API tokens as there may be.
    TooManyApiTokens = "too_many_api_tokens", 409;
    /// The role is built in.
    ReservedRole = "reserved_role", 409;
    /// Somebody has the role that is to be deleted.
    RoleInUse = "role_in_use", 409;
    /// The caller calls more often than one may, has more questions waiting or follows more streams of events, or nobody may
    /// try so many wrong tokens.
    RateLimited = "rate_limited", 429;
    /// The body comes too slowly.
    BodyTooSlow = "body_too_slow", 408;
    /// No join token has this id.
    UnknownJoinToken = "unknown_join_token", 404;
    /// As many join tokens are open as may be.
    TooManyJoinTokens = "too_many_join_tokens", 409;
    /// The coordinator has no key of the authority, so hosts get their certificates elsewhere.
    CannotIssue = "cannot_issue", 409;
    /// The number of hosts that a token lets in is not one that it can have.
    InvalidUses = "invalid_uses", 400;
    /// The name is not one that a node may have.
    InvalidNode = "invalid_node", 400;
    /// The address is not one at which a coordinator can be reached.
    InvalidAddress = "invalid_address", 400;
    /// The subject has as many steps that are not over as it may have, or these take as much room.
    QueueFull = "queue_full", 409;
    /// The coordinator is not recovering, so there is nothing to end.
    NotRecovering = "not_recovering", 409;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn each_code_is_one_word_with_a_status_of_an_error_and_a_sentence() {
        let texts: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let word = code.as_str().bytes();
            assert!(
                word.into_iter()
                    .all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{code}"
            );
            assert!((400..600).contains(&code.status()), "{code}");
            assert!(code.meaning().ends_with('.'), "{code}: {}", code.meaning());
        }
    }
}
