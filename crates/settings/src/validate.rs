//! Rules on values that are well-formed: what cannot work is refused, what has no effect is warned of.

use std::collections::BTreeSet;

use api::config::{
    CustomProvider, Duration, EnvoyGateway, ExtensionManager, ExtensionService, InfrastructureProviderType,
    KubernetesProvider, ProviderType, RateLimit, ResourceProviderType, WatchModeType,
};
use api::gateway::{Fraction, SecretObjectReference};

use crate::decode::Provenance;
use crate::election;
use crate::error::Problem;
use crate::last_good;

/// Collects problems of one configuration.
struct Checker<'a> {
    provenance: &'a Provenance,
    problems: Vec<Problem>,
}

/// Everything that is wrong with `config`.
pub(crate) fn validate(config: &EnvoyGateway, provenance: &Provenance) -> Vec<Problem> {
    let mut check = Checker { provenance, problems: Vec::new() };
    if config.gateway.controller_name.is_empty() {
        let remedy =
            format!("write one, such as {}, or remove the section gateway", api::config::DEFAULT_CONTROLLER_NAME);
        check.refuse("gateway.controllerName", "gateway controllerName is unspecified", &remedy);
    }
    check.provider(config);
    check.admin(config);
    check.telemetry(config);
    check.xds_server(config);
    if let Some(rate_limit) = &config.rate_limit {
        check.rate_limit(rate_limit);
    }
    check.extension_managers(config);
    let mut problems = check.problems;
    problems.extend(election::validate_leader_election(config, provenance));
    problems.extend(last_good::validate(config, provenance));
    problems
}

/// Everything in `config` that has no effect.
pub(crate) fn warnings(config: &EnvoyGateway, provenance: &Provenance) -> Vec<Problem> {
    let mut warn = Checker { provenance, problems: Vec::new() };
    for (position, kind) in config.gateway_api.enabled.iter().enumerate().filter(|(_, kind)| !kind.is_known()) {
        let known = api::config::ExperimentalGatewayApi::KNOWN.join(", ");
        warn.refuse(
            &format!("gatewayAPI.enabled[{position}]"),
            &format!("the kind {kind} is not known to this release, so it has no effect"),
            &format!("write one of {known}, or remove it"),
        );
    }
    let flags = &config.runtime_flags;
    for (list, names) in [("enabled", &flags.enabled), ("disabled", &flags.disabled)] {
        for (position, flag) in names.iter().enumerate().filter(|(_, flag)| !flag.is_known()) {
            let known = api::config::RuntimeFlag::KNOWN.join(", ");
            warn.refuse(
                &format!("runtimeFlags.{list}[{position}]"),
                &format!("the flag {flag} is not known to this release, so it has no effect"),
                &format!("write one of {known}, or remove it"),
            );
        }
    }
    for (position, flag) in flags.enabled.iter().enumerate().filter(|(_, flag)| flags.disabled.contains(flag)) {
        warn.refuse(
            &format!("runtimeFlags.enabled[{position}]"),
            &format!("the flag {flag} is also in runtimeFlags.disabled, which wins"),
            "keep it in one of the two lists",
        );
    }
    if config.extension_apis.disable_lua.is_some() && config.extension_apis.enable_lua.is_some() {
        warn.refuse("extensionApis.disableLua", "enableLua is there too and wins", "remove disableLua");
    }
    warn.problems
}

impl Checker<'_> {
    fn refuse(&mut self, field: &str, reason: &str, remedy: &str) {
        self.problems.push(self.provenance.problem(field, reason, remedy));
    }

    fn provider(&mut self, config: &EnvoyGateway) {
        match config.provider.type_ {
            ProviderType::Kubernetes => self.kubernetes("provider.kubernetes", &config.provider.kubernetes),
            ProviderType::Custom => match &config.provider.custom {
                None => self.refuse(
                    "provider.custom",
                    "empty custom provider settings",
                    "add the section with a resource, or use type Kubernetes",
                ),
                Some(custom) => self.custom(custom),
            },
        }
    }

    fn kubernetes(&mut self, at: &str, kubernetes: &KubernetesProvider) {
        if let Some(watch) = &kubernetes.watch {
            match watch.type_ {
                None => self.refuse(
                    &format!("{at}.watch.type"),
                    "envoy gateway watch mode invalid, should be 'Namespaces' or 'NamespaceSelector'",
                    "write one of Namespaces, NamespaceSelector, or remove the section watch to read all namespaces",
                ),
                Some(WatchModeType::Namespaces) if watch.namespaces.is_empty() => self.refuse(
                    &format!("{at}.watch.namespaces"),
                    "namespaces should be specified when envoy gateway watch mode is 'Namespaces'",
                    "list at least one namespace",
                ),
                Some(WatchModeType::NamespaceSelector) if watch.namespace_selector.is_none() => self.refuse(
                    &format!("{at}.watch.namespaceSelector"),
                    "namespaceSelector should be specified when envoy gateway watch mode is 'NamespaceSelector'",
                    "add a label selector, such as matchLabels",
                ),
                Some(_) => {}
            }
        }
        let limit = &kubernetes.client.rate_limit;
        for (field, value) in [("qps", limit.qps), ("burst", limit.burst)] {
            if value == 0 {
                self.refuse(&format!("{at}.client.rateLimit.{field}"), "no request could be made", "write at least 1");
            }
        }
    }

    fn custom(&mut self, custom: &CustomProvider) {
        let at = "provider.custom.resource";
        match custom.resource.type_ {
            ResourceProviderType::File => match &custom.resource.file {
                None => self.refuse(
                    &format!("{at}.file"),
                    "field 'file' should be specified when resource type is 'File'",
                    "add file.paths",
                ),
                Some(file) if file.paths.iter().all(String::is_empty) => self.refuse(
                    &format!("{at}.file.paths"),
                    "no paths were assigned for file resource provider to watch",
                    "list at least one file or folder",
                ),
                Some(_) => {}
            },
            ResourceProviderType::Kubernetes => {
                if let Some(kubernetes) = &custom.resource.kubernetes {
                    self.kubernetes(&format!("{at}.kubernetes"), kubernetes);
                }
            }
        }
        let Some(infrastructure) = &custom.infrastructure else { return };
        let at = "provider.custom.infrastructure";
        match infrastructure.type_ {
            InfrastructureProviderType::Host if infrastructure.host.is_none() => self.refuse(
                &format!("{at}.host"),
                "field 'host' should be specified when infrastructure type is 'Host'",
                "add the section; it may be empty: host: {}",
            ),
            InfrastructureProviderType::Host => {}
            InfrastructureProviderType::Remote => {
                match infrastructure.remote.as_ref().and_then(|remote| remote.service.as_ref()) {
                    None => self.refuse(
                        &format!("{at}.remote.service"),
                        "field 'service' should be specified when infrastructure type is 'Remote'",
                        "say how the service is reached: fqdn, ip or unix",
                    ),
                    Some(service) => self.service(&format!("{at}.remote.service"), service),
                }
            }
        }
    }

    fn admin(&mut self, config: &EnvoyGateway) {
        if config.admin.address.host.is_empty() {
            self.refuse("admin.address.host", "the host is empty", "write an address such as 127.0.0.1");
        }
    }

    fn telemetry(&mut self, config: &EnvoyGateway) {
        let sinks = config.telemetry.metrics.iter().flat_map(|metrics| &metrics.sinks);
        for (position, sink) in sinks.enumerate() {
            if sink.open_telemetry.is_none() {
                self.refuse(
                    &format!("telemetry.metrics.sinks[{position}].openTelemetry"),
                    "OpenTelemetry is required when sink Type is OpenTelemetry",
                    "add openTelemetry with a host",
                );
            }
        }
        let Some(traces) = config.telemetry.traces.as_ref().filter(|traces| !traces.disable) else { return };
        if traces.sink.open_telemetry.is_none() {
            self.refuse(
                "telemetry.traces.sink.openTelemetry",
                "OpenTelemetry is required when sink Type is OpenTelemetry",
                "add openTelemetry with a host, or disable: true",
            );
        }
        if let Some(rate) = &traces.sampling_rate {
            self.fraction("telemetry.traces.samplingRate", rate, true);
        }
        let Some(batch) = &traces.batch_span_processor else { return };
        for (field, value) in
            [("maxExportBatchSize", batch.max_export_batch_size), ("maxQueueSize", batch.max_queue_size)]
        {
            if value == Some(0) {
                let field = format!("telemetry.traces.batchSpanProcessor.{field}");
                self.refuse(&field, "no span would be sent", "write at least 1");
            }
        }
    }

    fn fraction(&mut self, field: &str, fraction: &Fraction, at_most_one: bool) {
        let denominator = fraction.denominator.unwrap_or(100);
        if fraction.numerator < 0 || denominator < 1 || (at_most_one && fraction.numerator > denominator) {
            let range = if at_most_one { "from 0 to 1" } else { "zero or more" };
            self.refuse(
                field,
                &format!("{}/{denominator} is not {range}", fraction.numerator),
                "mend numerator, or denominator (100 unless written)",
            );
        }
    }

    fn above_zero(&mut self, field: &str, duration: Option<&Duration>) {
        if duration.is_some_and(|duration| duration.get().is_zero()) {
            let reason = format!("{field} must be greater than zero");
            self.refuse(field, &reason, "write a longer duration, or remove the field for the default");
        }
    }

    fn xds_server(&mut self, config: &EnvoyGateway) {
        let server = &config.xds_server;
        self.above_zero("xdsServer.maxConnectionAge", server.max_connection_age.as_ref());
        self.above_zero("xdsServer.maxConnectionAgeGrace", server.max_connection_age_grace.as_ref());
    }

    fn rate_limit(&mut self, rate_limit: &RateLimit) {
        let at = "rateLimit.backend.redis";
        let redis = rate_limit.backend.redis.clone().unwrap_or_default();
        let url = redis.url.as_deref().filter(|url| !url.is_empty());
        match (url, &redis.url_ref) {
            (None, None) => self.refuse(
                at,
                "empty ratelimit redis settings",
                "add url with host and port, or urlRef with a Secret that holds them",
            ),
            (Some(_), Some(_)) => {
                self.refuse(&format!("{at}.urlRef"), "url and urlRef exclude one another", "remove one of the two");
            }
            (Some(url), None) => {
                if let Some(reason) = url.split(',').find_map(redis_url_mistake) {
                    self.refuse(
                        &format!("{at}.url"),
                        &format!("unknown ratelimit redis url format: {reason}"),
                        "write host:port or scheme://host:port, several with commas",
                    );
                }
            }
            (None, Some(source)) => {
                if source.secret_key_ref.optional == Some(true) {
                    self.refuse(
                        &format!("{at}.urlRef.secretKeyRef.optional"),
                        "the service cannot start without the Secret",
                        "remove the field",
                    );
                }
                if source.secret_key_ref.name.is_empty() || source.secret_key_ref.key.is_empty() {
                    let field = format!("{at}.urlRef.secretKeyRef");
                    self.refuse(&field, "a Secret is found by name and key", "write both");
                }
            }
        }
        let tracing = rate_limit.telemetry.as_ref().and_then(|telemetry| telemetry.tracing.as_ref());
        if tracing.and_then(|tracing| tracing.sampling_rate).is_some_and(|rate| rate > 100) {
            self.refuse(
                "rateLimit.telemetry.tracing.samplingRate",
                "it is more than 100 per cent",
                "write a number from 0 to 100",
            );
        }
    }

    fn extension_managers(&mut self, config: &EnvoyGateway) {
        if let Some(manager) = &config.extension_manager {
            if !config.extension_managers.is_empty() {
                self.refuse(
                    "extensionManagers",
                    "extensionManager and extensionManagers are mutually exclusive",
                    "move extensionManager into the list",
                );
            }
            self.extension_manager("extensionManager", manager);
        }
        let mut names = BTreeSet::new();
        for (position, manager) in config.extension_managers.iter().enumerate() {
            let at = format!("extensionManagers[{position}]");
            if manager.name.is_empty() {
                self.refuse(&format!("{at}.name"), "name is required", "give it a name of its own");
            } else if !names.insert(&manager.name) {
                let reason = format!("duplicate name {:?}", manager.name);
                self.refuse(&format!("{at}.name"), &reason, "give it a name of its own");
            }
            self.extension_manager(&at, manager);
        }
    }

    fn extension_manager(&mut self, at: &str, manager: &ExtensionManager) {
        let hooks = manager.hooks.as_ref().and_then(|hooks| hooks.xds_translator.as_ref());
        if hooks.is_none_or(|hooks| hooks.pre.is_empty() && hooks.post.is_empty()) {
            self.refuse(
                &format!("{at}.hooks"),
                "registered extension has no hooks specified",
                "list at least one under hooks.xdsTranslator.post",
            );
        }
        match &manager.service {
            None => self.refuse(
                &format!("{at}.service"),
                "extension service config is empty",
                "say how it is reached: fqdn, ip or unix",
            ),
            Some(service) => self.service(&format!("{at}.service"), service),
        }
    }

    fn service(&mut self, at: &str, service: &ExtensionService) {
        let targets = [service.fqdn.is_some(), service.ip.is_some(), service.unix.is_some(), !service.host.is_empty()];
        match targets.iter().filter(|given| **given).count() {
            0 => self.refuse(
                at,
                "extension service must contain a configured target",
                "say how it is reached: fqdn, ip or unix",
            ),
            1 => {}
            _ => self.refuse(
                at,
                "only one backend target can be configured for the extension manager",
                "keep one of fqdn, ip, unix and host",
            ),
        }
        if let Some(tls) = &service.tls {
            self.secret(&format!("{at}.tls.certificateRef"), Some(&tls.certificate_ref));
            self.secret(&format!("{at}.tls.clientCertificateRef"), tls.client_certificate_ref.as_ref());
        }
        let Some(retry) = &service.retry else { return };
        if retry.max_attempts == Some(0) {
            self.refuse(&format!("{at}.retry.maxAttempts"), "nothing would be asked", "write at least 1");
        }
        self.above_zero(&format!("{at}.retry.initialBackoff"), retry.initial_backoff.as_ref());
        self.above_zero(&format!("{at}.retry.maxBackoff"), retry.max_backoff.as_ref());
        if let Some(factor) = &retry.backoff_multiplier {
            self.fraction(&format!("{at}.retry.backoffMultiplier"), factor, false);
        }
        for (position, status) in retry.retryable_status_codes.iter().enumerate().filter(|(_, code)| !code.is_known()) {
            self.refuse(
                &format!("{at}.retry.RetryableStatusCodes[{position}]"),
                &format!("{status} is no gRPC status code"),
                &format!("write one of {}", api::config::RetryableGrpcStatus::KNOWN.join(", ")),
            );
        }
    }

    fn secret(&mut self, at: &str, reference: Option<&SecretObjectReference>) {
        let Some(reference) = reference else { return };
        let group = reference.group.as_deref().unwrap_or("");
        let kind = reference.kind.as_deref().unwrap_or("Secret");
        if !group.is_empty() || kind != "Secret" {
            self.refuse(at, "unsupported TLS certificate reference group/kind", "refer to a Secret of the core group");
        }
    }
}

/// What is wrong with one Redis address: `host`, `host:port`, `[address]:port`, a socket's path or a URL.
fn redis_url_mistake(text: &str) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return Some("an entry is empty".to_owned());
    }
    if text.starts_with('/') {
        return None;
    }
    let rest = match text.split_once("://") {
        None => text,
        Some((scheme, rest)) => {
            let mut characters = scheme.chars();
            let starts = characters.next().is_some_and(|first| first.is_ascii_alphabetic());
            if !starts || !characters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) {
                return Some("an entry has no valid scheme before ://".to_owned());
            }
            let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
            if rest.is_empty() {
                // scheme:///path/of/a/socket
                return text.split_once(":///").is_none().then(|| "an entry has no host".to_owned());
            }
            rest.rsplit('@').next().unwrap_or_default()
        }
    };
    let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, after)) => (host, after.strip_prefix(':')),
        None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Some("missing host before the port".to_owned());
    }
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => None,
        Some(_) => Some("the port is no number from 1 to 65535".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_addresses() {
        for good in [
            "localhost:6379",
            "redis",
            "10.0.0.1:6379",
            "[::1]:6379",
            "redis://user:pass@h:1/0?x=y",
            "rediss://h:6379",
            "unix:///var/run/redis.sock",
            "/var/run/redis.sock",
        ] {
            assert_eq!(redis_url_mistake(good), None, "{good}");
        }
        for bad in ["", ":foo", "h:0", "h:70000", "h:port", "://h", "1redis://h", "redis://", "redis://:6379"] {
            assert!(redis_url_mistake(bad).is_some(), "{bad}");
        }
    }
}
