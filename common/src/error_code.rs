//! Error codes of the HTTP API: a closed list, each with HTTP status and meaning. Tests compare this list with
//! `docs/troubleshooting.md` and the OpenAPI document.

use core::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $text:literal, $status:literal;)*) => {
        /// Stable code of an API error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $variant,)*
        }

        impl ErrorCode {
            /// All codes, in order of declaration.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),*];

            /// The code as the API writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(ErrorCode::$variant => $text,)*
                }
            }

            /// HTTP status of the response.
            pub const fn status(self) -> u16 {
                match self {
                    $(ErrorCode::$variant => $status,)*
                }
            }

            /// Meaning of the code, in one sentence.
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
    /// The header `Idempotency-Key` is empty, too long or contains characters that cannot be shown.
    InvalidIdempotencyKey = "invalid_idempotency_key", 400;
    /// A batch has more steps than one commit takes.
    TooManySteps = "too_many_steps", 400;
    /// The document has a kind that the call does not accept.
    InvalidKind = "invalid_kind", 400;
    /// The id of a step is not well-formed.
    InvalidId = "invalid_id", 400;
    /// The name of a step is empty or too long, or the name of a document is not well-formed.
    InvalidName = "invalid_name", 400;
    /// The subject is not a well-formed name.
    InvalidSubject = "invalid_subject", 400;
    /// The pool is not a well-formed name.
    InvalidPool = "invalid_pool", 400;
    /// The command is empty or holds a NUL byte.
    InvalidCommand = "invalid_command", 400;
    /// An environment variable has a name or value that no process can be given.
    InvalidEnv = "invalid_env", 400;
    /// An environment variable has a name that Sluice sets itself.
    ReservedEnv = "reserved_env", 400;
    /// The working directory is not an absolute path.
    InvalidWorkdir = "invalid_workdir", 400;
    /// The standard input of a step is neither `-` nor an absolute path.
    InvalidStdin = "invalid_stdin", 400;
    /// A file for the output of a step has no valid path, or one that others would overwrite.
    InvalidOutput = "invalid_output", 400;
    /// An input of a step has no valid name, or a step has too many or too large ones.
    InvalidInputs = "invalid_inputs", 400;
    /// A pattern of files to keep is no path below the step's directory, or there are too many.
    InvalidKeep = "invalid_keep", 400;
    /// A port of a step has no valid name or one that another has, or a step has too many.
    InvalidPorts = "invalid_ports", 400;
    /// A probe of a step names no port of the step, does nothing or several things, or has a number outside its bounds.
    InvalidProbe = "invalid_probe", 400;
    /// Command, environment and working directory are larger than a process can be given.
    TooLarge = "too_large", 400;
    /// The number of hosts is outside the allowed range.
    InvalidNodes = "invalid_nodes", 400;
    /// A time cannot be read.
    InvalidTime = "invalid_time", 400;
    /// `array` is no list of indexes, names too many or none, or lets no part start.
    InvalidArray = "invalid_array", 400;
    /// An entry of `after` is not a dependency, names a step twice, or the list is too long.
    InvalidDependency = "invalid_dependency", 400;
    /// A duration cannot be read, or is outside the allowed range of the field.
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
    /// The field does not belong to what the document describes.
    UnsupportedField = "unsupported_field", 400;
    /// A number of replicas is outside the allowed range, or the smallest one is greater than the greatest.
    InvalidReplicas = "invalid_replicas", 400;
    /// The metric or the target by which a service is scaled is not one that there is.
    InvalidMetric = "invalid_metric", 400;
    /// Two fields contradict each other.
    Contradiction = "contradiction", 400;
    /// The call has no valid credentials, or they were revoked or have expired.
    Unauthorized = "unauthorized", 401;
    /// The call comes from a web page of another site.
    ForeignOrigin = "foreign_origin", 403;
    /// No call has this path.
    UnknownRoute = "unknown_route", 404;
    /// No step has this id, or it ended so long ago that it was forgotten.
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
    /// The caller has not uploaded a file of this hash, or so long ago that it was removed.
    UnknownInput = "unknown_input", 404;
    /// No validation has this name.
    UnknownValidation = "unknown_validation", 404;
    /// No service has this name.
    UnknownService = "unknown_service", 404;
    /// The service has no such version any more, or none before the present one.
    UnknownRevision = "unknown_revision", 404;
    /// The subject has the maximum number of services.
    TooManyServices = "too_many_services", 409;
    /// The service was deleted, and its replicas are stopping.
    ServiceDeleting = "service_deleting", 409;
    /// The node that ran the step no longer has its output.
    OutputUnavailable = "output_unavailable", 404;
    /// The path exists but does not accept this method; the header `Allow` lists those it does.
    MethodNotAllowed = "method_not_allowed", 405;
    /// The id belongs to a step that was submitted with another body.
    IdInUse = "id_in_use", 409;
    /// The deadline of a submitted step has passed already.
    DeadlinePassed = "deadline_passed", 409;
    /// The step is to start after a step that does not exist, or that the caller may not see.
    UnknownDependency = "unknown_dependency", 409;
    /// A step names an input that its submitter has not uploaded, or of another size.
    MissingInput = "missing_input", 409;
    /// A part of an array is to start after a part that does not exist.
    UnpairedPart = "unpaired_part", 409;
    /// Steps of one call are to start after each other, so that none could ever start.
    DependencyCycle = "dependency_cycle", 409;
    /// The node is connected and can be deleted only by force.
    NodeLinked = "node_linked", 409;
    /// The node is disconnected and may still run steps.
    NodeHoldsSteps = "node_holds_steps", 409;
    /// The node would have more labels than allowed.
    TooManyLabels = "too_many_labels", 409;
    /// The object was changed since the caller read it, or it exists though the call requires that it does not.
    VersionConflict = "version_conflict", 412;
    /// Two changes of one call concern the same object.
    NamedTwice = "named_twice", 400;
    /// Steps still use what the change removes.
    InUse = "in_use", 409;
    /// The pool to be deleted still has nodes.
    PoolHasNodes = "pool_has_nodes", 409;
    /// The default pool of nodes and steps cannot be deleted.
    PoolIsDefault = "pool_is_default", 409;
    /// The pool has no hosts by its terms (`hosts: none`), and the call needs some, or the pool holds allocations.
    PoolWithoutHosts = "pool_without_hosts", 409;
    /// The pool cannot satisfy the policy in addition to its other policies.
    InvalidPolicy = "invalid_policy", 409;
    /// The events that were asked for are no longer kept.
    EventsGone = "events_gone", 410;
    /// The body is larger than the limit.
    BodyTooLarge = "body_too_large", 413;
    /// The offset is beyond the end of the output.
    OffsetBeyondEnd = "offset_beyond_end", 416;
    /// The coordinator failed.
    Internal = "internal", 500;
    /// The node that has the output or the GPU is not connected.
    NodeUnreachable = "node_unreachable", 503;
    /// The coordinator is stopping, and it is unknown whether the call took effect.
    Stopping = "stopping", 503;
    /// The coordinator's disk is nearly full; nothing new is accepted until space is freed.
    DiskFull = "disk_full", 507;
    /// The inputs of all steps, or those of the caller, take the maximum space on the coordinator.
    InputsFull = "inputs_full", 507;
    /// The step has already ended.
    StepOver = "step_over", 409;
    /// The step runs on several hosts and cannot be suspended.
    CannotSuspend = "cannot_suspend", 409;
    /// The step is no allocation, so it is neither renewed nor released.
    NotAnAllocation = "not_an_allocation", 409;
    /// The step is an allocation, so it is neither suspended nor queued again.
    IsAllocation = "is_allocation", 409;
    /// The allocation belongs to another subject, or the step inside it cannot be as asked for.
    InvalidInside = "invalid_inside", 409;
    /// The step is not queued, or an earlier attempt of it still holds resources, so it cannot be moved to another pool.
    CannotMove = "cannot_move", 409;
    /// The step has not ended, still holds resources, or is a part of an array, so it cannot be deleted.
    CannotDelete = "cannot_delete", 409;
    /// The pool to which a step was to be moved would reject it.
    MoveRejected = "move_rejected", 409;
    /// The platforms are not well-formed names.
    InvalidPlatform = "invalid_platform", 400;
    /// The pool is in maintenance, the caller is not its admin, and the step may run in no other pool.
    PoolInMaintenance = "pool_in_maintenance", 409;
    /// The cluster's settings reference a pool that would not exist.
    ClusterNamesPool = "cluster_names_pool", 409;
    /// A pool references a validation that would not exist.
    PoolNamesValidation = "pool_names_validation", 409;
    /// The step is not running, so no program can be run inside it.
    NotRunning = "not_running", 409;
    /// The step takes no input from callers, or not from this one.
    InputRefused = "input_refused", 409;
    /// No program listens at the port of the step, or this caller may not connect to it.
    PortRefused = "port_refused", 409;
    /// The pool has no such platform: it declares none of this name and none of its hosts has one.
    UnknownPlatform = "unknown_platform", 404;
    /// The pool's default platform would not exist.
    DefaultPlatformMissing = "default_platform_missing", 409;
    /// The pool would declare more platforms than allowed.
    TooManyPlatforms = "too_many_platforms", 409;
    /// Labels that begin with `sluice/` are facts and cannot be set.
    ReservedLabel = "reserved_label", 400;
    /// The name of a template is not well-formed, or one of its fields is invalid.
    InvalidTemplate = "invalid_template", 400;
    /// A `{{...}}` of a template names an unknown variable, or its braces are not balanced.
    InvalidVariable = "invalid_variable", 400;
    /// A mount does not consist of two absolute paths.
    InvalidMount = "invalid_mount", 400;
    /// The image of a step is neither a reference with its registry nor an absolute path.
    InvalidImage = "invalid_image", 400;
    /// The amount of disk space cannot be read.
    InvalidStorage = "invalid_storage", 400;
    /// No template has this name.
    UnknownTemplate = "unknown_template", 404;
    /// A pool references a template that would not exist.
    PoolNamesTemplate = "pool_names_template", 409;
    /// The caller has no right to this, or a rule denies it; whether the object exists is not disclosed.
    Forbidden = "forbidden", 403;
    /// A role, binding or token is invalid.
    InvalidAccess = "invalid_access", 400;
    /// No role has this name.
    UnknownRole = "unknown_role", 404;
    /// No binding has this name.
    UnknownBinding = "unknown_binding", 404;
    /// No API token has this name.
    UnknownApiToken = "unknown_api_token", 404;
    /// An API token has this name already.
    ApiTokenExists = "api_token_exists", 409;
    /// The maximum number of API tokens exists already.
    TooManyApiTokens = "too_many_api_tokens", 409;
    /// The role is built in.
    ReservedRole = "reserved_role", 409;
    /// The role to be deleted is still in use.
    RoleInUse = "role_in_use", 409;
    /// The caller makes more calls, has more pending calls or follows more event streams than allowed, or has tried too
    /// many wrong tokens.
    RateLimited = "rate_limited", 429;
    /// The body arrives too slowly.
    BodyTooSlow = "body_too_slow", 408;
    /// No join token has this id.
    UnknownJoinToken = "unknown_join_token", 404;
    /// The maximum number of open join tokens exists already.
    TooManyJoinTokens = "too_many_join_tokens", 409;
    /// The coordinator has no authority key, so hosts must get their certificates elsewhere.
    CannotIssue = "cannot_issue", 409;
    /// The number of hosts that a token admits is outside the allowed range.
    InvalidUses = "invalid_uses", 400;
    /// The name is not a valid node name.
    InvalidNode = "invalid_node", 400;
    /// The address is not a valid coordinator address.
    InvalidAddress = "invalid_address", 400;
    /// The subject has the maximum number of unfinished steps, or these take the maximum space.
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
