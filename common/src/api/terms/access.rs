//! Roles and bindings as documents.

use alloc::string::String;

use super::PutDocument;
use crate::access::{BindingTerms, RoleTerms};

impl PutDocument {
    /// A role.
    pub fn role(name: impl Into<String>, terms: RoleTerms) -> Self {
        let RoleTerms { description, rules } = terms;
        Self::Role {
            name: name.into(),
            description,
            rules,
            version: None,
        }
    }

    /// A binding.
    pub fn binding(name: impl Into<String>, terms: BindingTerms) -> Self {
        let BindingTerms {
            description,
            roles,
            pools,
            subjects,
            members,
        } = terms;
        Self::Binding {
            name: name.into(),
            description,
            roles,
            pools,
            subjects,
            members,
            version: None,
        }
    }
}
