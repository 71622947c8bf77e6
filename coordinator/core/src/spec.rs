//! Parses documents: checks each field and builds the change that a document asks for. The API and the simulator both
//! use it; whether changes fit together is checked when they are made (`handlers/apply.rs`).

mod rules;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::access::{BindingSpec, RoleSpec};
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
use sluice_common::validation::ValidationSpec;

use crate::input::DesiredPool;
use crate::input::{Desired, TermsChange};
use crate::model::access::AccessChange;

/// A field that may not hold what it holds.
pub fn invalid(field: &str, code: ErrorCode, error: &impl ToString) -> FieldError {
    FieldError {
        code,
        field: field.to_owned(),
        message: error.to_string(),
    }
}

/// The change that a document asks for.
///
/// # Errors
/// The first field that may not hold what it holds.
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

/// A pool's terms, checked.
///
/// # Errors
/// The first field that may not hold what it holds, or that contradicts another.
pub fn pool(mut spec: PoolSpec) -> Result<DesiredPool, FieldError> {
    amounts("capacity", &spec.capacity)?;
    rules::check(&spec)?;
    let platforms = Some(platforms_listed(spec.platforms.take().unwrap_or_default())?);
    rules::able_to_pin(&spec)?;
    Ok(DesiredPool { spec, platforms })
}

/// A subject's terms in a pool, checked.
///
/// # Errors
/// An amount that is too large, or what would be reserved for nobody in particular.
pub fn policy(subject: &Subject, spec: PolicySpec) -> Result<PolicySpec, FieldError> {
    if subject.is_everyone() && spec.reserved.values().any(|n| *n > 0) {
        let why = "the policy of `*` is that of each who has none, and reserves nothing: leave `reserved` out, or write \
                   a policy for each subject that is to have a share";
        return Err(invalid("reserved", ErrorCode::Contradiction, &why));
    }
    amount("priority", spec.priority)?;
    amounts("reserved", &spec.reserved)?;
    amounts("limit", &spec.limit)?;
    Ok(spec)
}

/// A template, checked.
///
/// # Errors
/// The first field that may not hold what it holds.
pub fn template(name: String, terms: Box<Template>) -> Result<Desired, FieldError> {
    let template = template_name("name", name)?;
    terms.check()?;
    Ok(Desired::Template { template, terms })
}

/// A document of assertions, each of which is read.
///
/// # Errors
/// The name, or the first assertion that cannot be read.
pub fn validation(name: String, terms: ValidationSpec) -> Result<Desired, FieldError> {
    let validation = validation_name(name)?;
    let read = terms.read();
    read.map_err(|e| invalid(&e.field, ErrorCode::InvalidAssertion, &e.wrong))?;
    Ok(Desired::Validation { validation, terms })
}

/// The terms of the cluster, checked.
///
/// # Errors
/// Where they send away nobody in particular.
pub fn cluster(terms: ClusterSpec) -> Result<Desired, FieldError> {
    if terms.subjects.keys().any(Subject::is_everyone) {
        let why = "where all steps go is `default_pool`";
        return Err(invalid("subjects.*", ErrorCode::InvalidSubject, &why));
    }
    Ok(Desired::Cluster { terms })
}

/// A platform's terms, checked.
///
/// # Errors
/// The first field that may not hold what it holds.
pub fn platform_terms(terms: PlatformSpec) -> Result<PlatformSpec, FieldError> {
    check_platform("", terms.overrides.as_deref(), &terms.validations)?;
    Ok(terms)
}

/// Fields are named with what stands before them.
fn check_platform(
    below: &str,
    overrides: Option<&Template>,
    validations: &[ValidationName],
) -> Result<(), FieldError> {
    let of_it = |field: &str| format!("{below}{field}");
    if let Some(template) = overrides {
        template.check().map_err(|e| FieldError {
            field: of_it(&format!("override.{}", e.field)),
            ..e
        })?;
    }
    let named = rules::named_once(validations);
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

/// A pool's name.
///
/// # Errors
/// It is none.
pub fn pool_name(field: &str, name: String) -> Result<PoolName, FieldError> {
    PoolName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidPool, &e))
}

/// A subject's name.
///
/// # Errors
/// It is none.
pub fn subject_name(name: String) -> Result<Subject, FieldError> {
    Subject::new(name).map_err(|e| invalid("subject", ErrorCode::InvalidSubject, &e))
}

/// A platform's name.
///
/// # Errors
/// It is none.
pub fn platform_name(field: &str, name: String) -> Result<PlatformName, FieldError> {
    PlatformName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidPlatform, &e))
}

/// A template's name.
///
/// # Errors
/// It is none.
pub fn template_name(field: &str, name: String) -> Result<TemplateName, FieldError> {
    TemplateName::new(name).map_err(|e| invalid(field, ErrorCode::InvalidTemplate, &e))
}

/// The name of a document of assertions.
///
/// # Errors
/// It is none.
pub fn validation_name(name: String) -> Result<ValidationName, FieldError> {
    ValidationName::new(name).map_err(|e| invalid("name", ErrorCode::InvalidName, &e))
}

/// The name of a role or of a binding.
///
/// # Errors
/// It is none.
pub fn access_name<T: TryFrom<String, Error = NameError>>(name: String) -> Result<T, FieldError> {
    T::try_from(name).map_err(|e| invalid("name", ErrorCode::InvalidAccess, &e))
}

/// The platforms that a pool lists: what it leaves out is gone.
fn platforms_listed(list: Vec<NamedPlatform>) -> Result<PlatformSpecs, FieldError> {
    for (at, NamedPlatform { spec, .. }) in list.iter().enumerate() {
        let below = format!("platforms[{at}].");
        check_platform(&below, spec.overrides.as_deref(), &spec.validations)?;
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
    each.try_for_each(|(key, n)| amount(&format!("{field}.{key}"), *n))
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
