//! Terms as somebody wrote them in a document, checked field by field and turned into the change that they ask for. The API
//! and the simulator read documents by it, so that both take the same ones; whether the changes
//! can be made together is judged where they are made (`on/apply.rs`).

mod rules;

use crate::model::pool::PoolSpec;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::mem::take;

use sluice_common::access::{BindingTerms, RoleTerms};
use sluice_common::api::{NamedPlatform, PolicyRequest, PoolRequest, PutDocument, declared};
use sluice_common::cluster::ClusterTerms;
use sluice_common::error_code::ErrorCode;
use sluice_common::id::{NameError, PlatformName, PoolName, Subject, TemplateName, ValidationName};
use sluice_common::inventory::Capability;
use sluice_common::limit::MAX_AMOUNT;
use sluice_common::platform::terms::{Declared, PlatformTerms};
use sluice_common::request::FieldError;
use sluice_common::template::Template;
use sluice_common::template::check::MAX_TEMPLATES;
use sluice_common::time::Span;
use sluice_common::validation::ValidationTerms;
use sluice_scheduler::{Policy, Table};

use crate::input::WantedPool;
use crate::input::{Change, Wanted};
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
pub fn change(document: PutDocument) -> Result<Change, FieldError> {
    let (wanted, version) = match document {
        PutDocument::Pool {
            name,
            description,
            capacity,
            min_runtime,
            require,
            maintenance,
            defaults,
            max,
            on_preempt_allowed,
            validations,
            default_platform,
            unmatched_platform,
            platforms,
            templates,
            version,
        } => {
            let request = PoolRequest {
                description,
                capacity,
                min_runtime,
                require,
                maintenance,
                defaults,
                max,
                on_preempt_allowed,
                validations,
                default_platform,
                unmatched_platform,
                platforms,
                templates,
            };
            let pool = pool_name("name", name)?;
            let terms = Box::new(self::pool(request)?);
            (Wanted::Pool { pool, terms }, version)
        }
        PutDocument::Template {
            name,
            template,
            version,
        } => (self::template(name, template)?, version),
        PutDocument::Cluster {
            default_pool,
            subjects,
            version,
        } => {
            let terms = ClusterTerms {
                default_pool,
                subjects,
            };
            (cluster(terms)?, version)
        }
        PutDocument::Validation {
            name,
            description,
            assertions,
            version,
        } => {
            let terms = ValidationTerms {
                description,
                assertions,
            };
            (validation(name, terms)?, version)
        }
        PutDocument::Platform {
            pool,
            name,
            description,
            selector,
            overrides,
            validations,
            version,
        } => {
            let terms = PlatformTerms {
                description,
                selector,
                overrides,
                validations,
            };
            (platform(pool, name, terms)?, version)
        }
        PutDocument::Role {
            name,
            description,
            rules,
            version,
        } => (role(name, RoleTerms { description, rules })?, version),
        PutDocument::Binding {
            name,
            description,
            roles,
            pools,
            subjects,
            members,
            version,
        } => {
            let terms = BindingTerms {
                description,
                roles,
                pools,
                subjects,
                members,
            };
            (binding(name, terms)?, version)
        }
        PutDocument::Policy {
            pool,
            subject,
            priority,
            reserved,
            limit,
            version,
        } => {
            let request = PolicyRequest {
                priority,
                reserved,
                limit,
            };
            let (pool, subject) = (pool_name("pool", pool)?, subject_name(subject)?);
            let policy = self::policy(&subject, request)?;
            let wanted = Wanted::Policy {
                pool,
                subject,
                policy,
            };
            (wanted, version)
        }
    };
    Ok(Change { wanted, version })
}

/// A pool's terms, checked.
///
/// # Errors
/// The first field that may not hold what it holds, or that contradicts another.
pub fn pool(mut request: PoolRequest) -> Result<WantedPool, FieldError> {
    let min_runtime: Option<Result<Span, _>> = request.min_runtime.as_deref().map(str::parse);
    let min_runtime = min_runtime.transpose();
    let min_runtime =
        min_runtime.map_err(|e| invalid("min_runtime", ErrorCode::InvalidDuration, &e))?;
    let capacity = amounts("capacity", take(&mut request.capacity))?;
    let require = capabilities(&request.require)?;
    let platforms = request.platforms.take();
    let spec = PoolSpec {
        description: take(&mut request.description),
        capacity,
        min_runtime: min_runtime.unwrap_or(Span::ZERO),
        require,
        rules: rules::checked(request)?,
    };
    let platforms = Some(platforms_listed(platforms)?);
    let spec = rules::able_to_pin(spec)?;
    Ok(WantedPool { spec, platforms })
}

/// A subject's terms in a pool, checked.
///
/// # Errors
/// An amount that is too large, or what would be reserved for nobody in particular.
pub fn policy(subject: &Subject, request: PolicyRequest) -> Result<Policy, FieldError> {
    if subject.is_everyone() && request.reserved.values().any(|n| *n > 0) {
        let why = "the policy of `*` is that of each who has none, and reserves nothing: leave `reserved` out, or write \
                   a policy for each subject that is to have a share";
        return Err(invalid("reserved", ErrorCode::Contradiction, &why));
    }
    Ok(Policy {
        priority: amount("priority", request.priority)?,
        reserved: amounts("reserved", request.reserved)?,
        limit: amounts("limit", request.limit)?,
    })
}

/// A template, checked.
///
/// # Errors
/// The first field that may not hold what it holds.
pub fn template(name: String, terms: Box<Template>) -> Result<Wanted, FieldError> {
    let template = template_name("name", name)?;
    terms.check()?;
    Ok(Wanted::Template { template, terms })
}

/// A document of assertions, each of which is read.
///
/// # Errors
/// The name, or the first assertion that cannot be read.
pub fn validation(name: String, terms: ValidationTerms) -> Result<Wanted, FieldError> {
    let validation = validation_name(name)?;
    let read = terms.read();
    read.map_err(|e| invalid(&e.field, ErrorCode::InvalidAssertion, &e.wrong))?;
    Ok(Wanted::Validation { validation, terms })
}

/// The terms of the cluster, checked.
///
/// # Errors
/// Where they send away nobody in particular.
pub fn cluster(terms: ClusterTerms) -> Result<Wanted, FieldError> {
    if terms.subjects.keys().any(Subject::is_everyone) {
        let why = "where all steps go is `default_pool`";
        return Err(invalid("subjects.*", ErrorCode::InvalidSubject, &why));
    }
    Ok(Wanted::Cluster { terms })
}

/// A platform's terms, checked.
///
/// # Errors
/// The first field that may not hold what it holds.
pub fn platform_terms(terms: PlatformTerms) -> Result<PlatformTerms, FieldError> {
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

fn platform(pool: String, name: String, terms: PlatformTerms) -> Result<Wanted, FieldError> {
    let pool = pool_name("pool", pool)?;
    let platform = platform_name("name", name)?;
    let terms = Box::new(self::platform_terms(terms)?);
    Ok(Wanted::Platform {
        pool,
        platform,
        terms,
    })
}

fn role(name: String, terms: RoleTerms) -> Result<Wanted, FieldError> {
    let role = access_name(name)?;
    let change = AccessChange::RolePut { role, terms };
    Ok(Wanted::Access { change })
}

fn binding(name: String, terms: BindingTerms) -> Result<Wanted, FieldError> {
    let binding = access_name(name)?;
    let change = AccessChange::BindingPut { binding, terms };
    Ok(Wanted::Access { change })
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

/// The templates that a pool names.
fn template_names(names: &[String]) -> Result<Vec<TemplateName>, FieldError> {
    let wrong = |field: &str, why: &str| invalid(field, ErrorCode::InvalidTemplate, &why);
    if names.len() > MAX_TEMPLATES {
        let why = format!("{} templates: {MAX_TEMPLATES} are the most", names.len());
        return Err(wrong("templates", &why));
    }
    let mut found = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let field = format!("templates[{at}]");
        let name = template_name(&field, name.clone())?;
        if found.contains(&name) {
            let why = format!("`{name}` is there twice: a layer over itself changes nothing");
            return Err(wrong(&field, &why));
        }
        found.push(name);
    }
    Ok(found)
}

/// The platforms that a pool lists: what it leaves out is gone.
fn platforms_listed(list: Option<Vec<NamedPlatform>>) -> Result<Declared, FieldError> {
    let list = list.unwrap_or_default();
    for (at, platform) in list.iter().enumerate() {
        let below = format!("platforms[{at}].");
        check_platform(&below, platform.overrides.as_deref(), &platform.validations)?;
    }
    declared(list).map_err(|e| invalid("platforms", ErrorCode::NamedTwice, &e))
}

fn amounts(field: &str, table: Table) -> Result<Table, FieldError> {
    for (key, n) in &table {
        amount(&format!("{field}.{key}"), *n)?;
    }
    Ok(table)
}

fn amount(field: &str, n: u64) -> Result<u64, FieldError> {
    match n {
        0..=MAX_AMOUNT => Ok(n),
        _ => {
            let why = format!("{n} is too large: write at most {MAX_AMOUNT}");
            Err(invalid(field, ErrorCode::InvalidAmount, &why))
        }
    }
}

fn capabilities(words: &[String]) -> Result<BTreeSet<Capability>, FieldError> {
    let named = words.iter().enumerate().map(|(at, word)| {
        let field = format!("require[{at}]");
        word.parse()
            .map_err(|e| invalid(&field, ErrorCode::InvalidCapability, &e))
    });
    named.collect()
}
