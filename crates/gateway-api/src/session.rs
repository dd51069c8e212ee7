//! Session persistence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use crate::open_enum;

/// Keeps requests of a session at one backend endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!has(self.cookieConfig) || !has(self.cookieConfig.lifetimeType) || self.cookieConfig.lifetimeType != 'Permanent' || has(self.absoluteTimeout)", "message": "AbsoluteTimeout must be specified when cookie lifetimeType is Permanent" },
    { "rule": "!has(self.cookieConfig) || self.type == 'Cookie'", "message": "cookieConfig can only be set with type Cookie" },
]))]
pub struct SessionPersistence {
    /// When a session ends at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::duration")]
    pub absolute_timeout: Option<String>,
    /// Settings of the cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie_config: Option<CookieConfig>,
    /// Name of the cookie or header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub session_name: Option<String>,
    /// What carries the session.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Cookie"))]
    pub type_: Option<SessionPersistenceType>,
}

/// Settings of the session cookie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct CookieConfig {
    /// How long the cookie lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Session"))]
    pub lifetime_type: Option<CookieLifetimeType>,
}

open_enum! {
    /// What carries the session.
    #[derive(Default)]
    pub enum SessionPersistenceType {
        /// A cookie.
        #[default]
        Cookie,
        /// A header.
        Header,
    }
}

open_enum! {
    /// Whether a cookie outlives the browser session.
    #[derive(Default)]
    pub enum CookieLifetimeType {
        /// Lives until `absoluteTimeout`.
        Permanent,
        /// Ends with the browser session.
        #[default]
        Session,
    }
}
