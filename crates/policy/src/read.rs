//! Values of policies as numbers, with the field in each error.

use api::envoygateway::Duration;
use ir::Millis;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What is wrong with a policy: fields, causes and remedies.
#[derive(Debug, Default)]
pub(crate) struct Wrong(Vec<String>);

impl Wrong {
    /// Notes an error.
    pub(crate) fn add(&mut self, message: impl Into<String>) {
        self.0.push(message.into());
    }

    pub(crate) fn into_messages(self) -> Vec<String> {
        self.0
    }

    /// A duration.
    pub(crate) fn time(&mut self, field: &str, value: Option<&Duration>) -> Option<Millis> {
        match value?.get() {
            Ok(d) => Some(Millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))),
            Err(e) => {
                self.add(format!("{field}: {e}"));
                None
            }
        }
    }

    /// A duration in whole seconds.
    pub(crate) fn seconds(&mut self, field: &str, value: Option<&Duration>) -> Option<u32> {
        self.time(field, value).and_then(|Millis(ms)| u32::try_from(ms / 1000).ok())
    }

    /// A number of bytes that fits 32 bits.
    pub(crate) fn bytes(&mut self, field: &str, value: Option<&Quantity>) -> Option<u32> {
        let text = &value?.0;
        let bytes = resources::quantity::units(text).and_then(|b| u32::try_from(b).ok());
        if bytes.is_none() {
            self.add(format!("{field}: {text} is no number of bytes between 0 and {}; give one", u32::MAX));
        }
        bytes
    }

    /// A number that fits 32 bits.
    pub(crate) fn count(&mut self, field: &str, value: Option<i64>) -> Option<u32> {
        let value = value?;
        let count = u32::try_from(value).ok();
        if count.is_none() {
            self.add(format!("{field}: {value} is not between 0 and {}; give a number that is", u32::MAX));
        }
        count
    }

    /// A pattern that Envoy takes.
    pub(crate) fn pattern(&mut self, field: &str, value: &str) -> Option<ir::Name> {
        match re2::check(value) {
            Ok(()) => Some(value.into()),
            Err(e) => {
                self.add(format!("{field}: `{value}` is no RE2 expression: {e}; correct it"));
                None
            }
        }
    }
}
