//! Parses documents: checks each field and builds the change that a document asks for. The API and the simulator both
//! use it; whether changes fit together is checked when they are made (`handlers/apply.rs`).

mod rules;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::access::{BindingSpec, RoleSpec};
use sluice_common::amount::table::meant_key;
use sluice_common::api::PutDocument;
use sluice_common::cluster::ClusterSpec;
use sluice_common::document::PoolObjectId;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{NameError, PlatformName, PoolName, Subject, TemplateName, ValidationName};
use sluice_common::limit::MAX_AMOUNT;
use sluice_common::platform::spec::{PlatformSpec, PlatformSpecs};
use sluice_common::pool::{NamedPlatform, PolicySpec, PoolSpec, ResourceTable};
use sluice_common::request::FieldError;
use sluice_common::template::Template;
use sluice_common::topology::{MAX_LEVELS, TopologySpec};
use sluice_common::validation::ValidationSpec;

use crate::input::DesiredPool;
use crate::input::{Desired, TermsChange};
use crate::model::access::AccessChange;

/// Makes the error of an invalid field.
pub fn invalid(field: &str, code: ErrorCode, error: &impl ToString) -> FieldError {
    FieldError {
        code,
        field: field.to_owned(),
        message: error.to_string(),
    }
}

/// Builds the change that a document asks for.
///
/// # Errors
/// The first invalid field.
pub fn change(document: PutDocument) -> Result<TermsChange, FieldError> {
    let (wanted, version) = match document {
        PutDocument::Pool(it) => {
            let pool = pool_name("name", it.id.name)?;
            let terms = Box::new(self::pool(*it.spec)?);
            (Desired::Pool { pool, terms }, it.version)
        }
        PutDocument::Template {
            name,
            template,
            version,
        } => (self::template(name, template)?, version),
        PutDocument::Cluster(it) => (cluster(it.spec)?, it.version),
        PutDocument::Topology(it) => (topology(it.spec)?, it.version),
        PutDocument::Validation(it) => (validation(it.id.name, it.spec)?, it.version),
        PutDocument::Platform(it) => {
            let PoolObjectId { pool, name } = it.id;
            (platform(pool, name, it.spec)?, it.version)
        }
        PutDocument::Role(it) => (role(it.id.name, it.spec)?, it.version),
        PutDocument::Binding(it) => (binding(it.id.name, it.spec)?, it.version),
        PutDocument::Policy(it) => {
            let pool = pool_name("pool", it.id.pool)?;
            let subject = subject_name(it.id.subject)?;
            let policy = self::policy(&subject, it.spec)?;
            let wanted = Desired::Policy {
                pool,
                subject,
                policy,
            };
            (wanted, it.version)
        }
    };
    Ok(TermsChange {
        desired: wanted,
        version,
    })
}

/// Checks the terms of a pool.
///
/// # Errors
/// The first field that is invalid or contradicts another.
pub fn pool(mut spec: PoolSpec) -> Result<DesiredPool, FieldError> {
    amounts("capacity", &spec.capacity)?;
    rules::check(&spec)?;
    let platforms = Some(platforms_listed(spec.platforms.take().unwrap_or_default())?);
    rules::able_to_pin(&spec)?;
    Ok(DesiredPool { spec, platforms })
}

/// Checks the policy of a subject in a pool.
///
/// # Errors
/// An amount is too large, or the policy of `*` reserves resources.
pub fn policy(subject: &Subject, spec: PolicySpec) -> Result<PolicySpec, FieldError> {
    if subject.is_everyone() && spec.reserved.values().any(|n| *n > 0) {
        let why = "the policy of `*` is that of each who has none, and reserves nothing: leave `reserved` out, or write \
                   a policy for each subject that is to have a share";
        return Err(invalid("reserved", ErrorCode::InvalidBody, &why));
    }
    amount("priority", spec.priority)?;
    amounts("reserved", &spec.reserved)?;
    amounts("limit", &spec.limit)?;
    Ok(spec)
}

/// Checks a template.
///
/// # Errors
/// The first invalid field.
pub fn template(name: String, terms: Box<Template>) -> Result<Desired, FieldError> {
    let template = template_name("name", name)?;
    terms.check()?;
    Ok(Desired::Template { template, terms })
}

/// Checks a validation document by reading each assertion.
///
/// # Errors
/// The name is invalid, or the first assertion that cannot be read.
pub fn validation(name: String, terms: ValidationSpec) -> Result<Desired, FieldError> {
    let validation = validation_name(name)?;
    let read = terms.read();
    read.map_err(|e| invalid(&e.field, ErrorCode::InvalidAssertion, &e.wrong))?;
    Ok(Desired::Validation { validation, terms })
}

/// Checks the terms of the cluster.
///
/// # Errors
/// `subjects` names the subject `*`, for which `default_pool` stands.
pub fn cluster(terms: ClusterSpec) -> Result<Desired, FieldError> {
    if terms.subjects.keys().any(Subject::is_everyone) {
        let why = "where all steps go is `default_pool`";
        return Err(invalid("subjects.*", ErrorCode::InvalidSubject, &why));
    }
    Ok(Desired::Cluster { terms })
}

/// Checks the topology.
///
/// # Errors
/// There are too many levels, or two have one name or one label.
pub fn topology(terms: TopologySpec) -> Result<Desired, FieldError> {
    let levels = &terms.levels;
    if levels.len() > MAX_LEVELS {
        let why = format!("{} levels: write at most {MAX_LEVELS}", levels.len());
        return Err(invalid("levels", ErrorCode::Contradiction, &why));
    }
    for (at, level) in levels.iter().enumerate() {
        let twice = |field: &str, text: &str| {
            let why = format!("`{text}` stands in two levels: remove one");
            Err(invalid(
                &format!("levels[{at}].{field}"),
                ErrorCode::NamedTwice,
                &why,
            ))
        };
        let others = &levels[..at];
        if others.iter().any(|other| other.name == level.name) {
            return twice("name", level.name.as_str());
        }
        if others.iter().any(|other| other.label == level.label) {
            return twice("label", level.label.as_str());
        }
    }
    Ok(Desired::Topology { terms })
}

/// Checks the terms of a platform.
///
/// # Errors
/// The first invalid field.
pub fn platform_terms(terms: PlatformSpec) -> Result<PlatformSpec, FieldError> {
    check_platform("", &terms)?;
    Ok(terms)
}

/// Checks the parts of a platform. `below` is put before the names of its fields.
fn check_platform(below: &str, terms: &PlatformSpec) -> Result<(), FieldError> {
    let of_it = |field: &str| format!("{below}{field}");
    let depends = terms.selector.condition_on_layout();
    if let Some(condition) = depends.filter(|_| terms.mig.is_some()) {
        let why = format!(
            "GPUs that are cut no longer tell `{condition}`: select them by `gpu_model` instead, which takes names in \
             full, such as `NVIDIA A100-SXM4-80GB`"
        );
        return Err(invalid(&of_it("mig"), ErrorCode::Contradiction, &why));
    }
    if let Some(template) = &terms.overrides {
        template.check().map_err(|e| FieldError {
            field: of_it(&format!("override.{}", e.field)),
            ..e
        })?;
    }
    let named = rules::named_once(&terms.validations);
    named.map_err(|e| FieldError {
        field: of_it(&e.field),
        ..e
    })
}

fn platform(pool: String, name: String, terms: PlatformSpec) -> Result<Desired, FieldError> {
    let pool = pool_name("pool", pool)?;
    let platform = platform_name("name", name)?;
    let terms = Box::new(self::platform_terms(terms)?);
    Ok(Desired::Platform {
        pool,
        platform,
        terms,
    })
}

fn role(name: String, terms: RoleSpec) -> Result<Desired, FieldError> {
    let role = access_name(name)?;
    let change = AccessChange::RolePut { role, terms };
    Ok(Desired::Access { change })
}

fn binding(name: String, terms: BindingSpec) -> Result<Desired, FieldError> {
    let binding = access_name(name)?;
    let change = AccessChange::BindingPut { binding, terms };
    Ok(Desired::Access { change })
}

/// Reads the name of a pool.
///
/// # Errors
/// The name is invalid.
pub fn pool_name(field: &str, name: String) -> Result<PoolName, FieldError> {
    PoolName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidPool, &e))
}

/// Reads the name of a subject.
///
/// # Errors
/// The name is invalid.
pub fn subject_name(name: String) -> Result<Subject, FieldError> {
    Subject::new(name).map_err(|e| invalid("subject", ErrorCode::InvalidSubject, &e))
}

/// Reads the name of a platform.
///
/// # Errors
/// The name is invalid.
pub fn platform_name(field: &str, name: String) -> Result<PlatformName, FieldError> {
    PlatformName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidPlatform, &e))
}

/// Reads the name of a template.
///
/// # Errors
/// The name is invalid.
pub fn template_name(field: &str, name: String) -> Result<TemplateName, FieldError> {
    TemplateName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidTemplate, &e))
}

/// Reads the name of a validation document.
///
/// # Errors
/// The name is invalid.
pub fn validation_name(name: String) -> Result<ValidationName, FieldError> {
    ValidationName::new(name).map_err(|e| invalid("name", ErrorCode::InvalidName, &e))
}

/// Reads the name of a role or of a binding.
///
/// # Errors
/// The name is invalid.
pub fn access_name<T: TryFrom<String, Error = NameError>>(name: String) -> Result<T, FieldError> {
    T::try_from(name).map_err(|e| invalid("name", ErrorCode::InvalidAccess, &e))
}

/// The platforms that a pool lists. Platforms that it leaves out are deleted.
fn platforms_listed(list: Vec<NamedPlatform>) -> Result<PlatformSpecs, FieldError> {
    for (at, NamedPlatform { spec, .. }) in list.iter().enumerate() {
        let below = format!("platforms[{at}].");
        check_platform(&below, spec)?;
    }
    let mut declared = PlatformSpecs::new();
    for NamedPlatform {
        id: names, spec, ..
    } in list
    {
        let twice = format!("platform `{}` is listed twice: remove one", names.name);
        if declared.insert(names.name, spec).is_some() {
            return Err(invalid("platforms", ErrorCode::NamedTwice, &twice));
        }
    }
    Ok(declared)
}

fn amounts(field: &str, table: &ResourceTable) -> Result<(), FieldError> {
    let mut each = table.iter();
    each.try_for_each(|(key, n)| {
        let field = format!("{field}.{key}");
        check_key(&field, key.as_str(), *n)?;
        amount(&field, *n)
    })
}

/// Refuses names that would be keys of their own, which bind nobody.
fn check_key(field: &str, key: &str, n: u64) -> Result<(), FieldError> {
    if matches!(key, "memory" | "storage") {
        let why =
            format!("{n} has no unit: write such as `{n}GiB`, or `{n}MB` for {n} times 10^6 bytes");
        return Err(invalid(field, ErrorCode::InvalidAmount, &why));
    }
    let Some(meant) = meant_key(key) else {
        return Ok(());
    };
    let why = format!("`{key}` is not a resource key: did you mean `{meant}`?");
    Err(invalid(field, ErrorCode::InvalidResourceKey, &why))
}

fn amount(field: &str, n: u64) -> Result<(), FieldError> {
    match n {
        0..=MAX_AMOUNT => Ok(()),
        _ => {
            let why = format!("{n} is too large: write at most {MAX_AMOUNT}");
            Err(invalid(field, ErrorCode::InvalidAmount, &why))
        }
    }
}
