//! How fleets are run here, apart from what each asks for.

use std::cmp::Ordering;

use api::config::{DeployModeType, EnvoyGateway};
use semver::{BuildMetadata, Prerelease, Version};

use super::{
    compare,
    names::LABEL,
    object::{Live, Object},
};

/// Envoy's image where nothing else is said.
pub const ENVOY_IMAGE: &str = "docker.io/envoyproxy/envoy:distroless-v1.40.0";

/// Settings of all fleets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Namespace of the control plane.
    pub namespace: String,
    /// DNS domain of the cluster. Default: `cluster.local`.
    pub dns_domain: String,
    /// Fleets live in the namespace of their Gateway. Default: in the control plane's.
    pub gateway_namespaces: bool,
    /// Envoy's image, for fleets that name none. A fleet that runs keeps the image that it has until its pods change anyway:
    /// a new release of the control plane is no reason to replace proxies.
    pub envoy_image: String,
    /// Image with the shutdown manager, which is this program. Kept in the same way.
    pub shutdown_image: String,
    /// Zones of proxies are known, so that those of a fleet route by zone. Default: on.
    pub zones: bool,
    /// Name of the controller, by which several control planes in one cluster tell their fleets apart.
    pub controller: String,
    /// CAs of the control plane as PEM, for proxies that read them from a ConfigMap.
    pub ca: String,
    /// Version of the control plane: what a newer one wrote is left alone. Default: this release.
    pub version: Version,
}

// === impl Options ===

impl Options {
    /// The usual ones for a control plane in that namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, shutdown_image: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dns_domain: "cluster.local".to_owned(),
            gateway_namespaces: false,
            envoy_image: ENVOY_IMAGE.to_owned(),
            shutdown_image: shutdown_image.into(),
            zones: true,
            controller: "gateway.envoyproxy.io/gatewayclass-controller".to_owned(),
            ca: String::new(),
            version: Version::parse(env!("CARGO_PKG_VERSION")).expect("invariant: cargo takes no other versions"),
        }
    }

    /// What the configuration file says of fleets, for a control plane in that namespace; `image` is that of this program where
    /// the file names none.
    #[must_use]
    pub fn from_settings(settings: &EnvoyGateway, namespace: impl Into<String>, image: &str) -> Self {
        let provider = &settings.provider.kubernetes;
        let own = provider.shutdown_manager.as_ref().and_then(|s| s.image.as_deref());
        Self {
            gateway_namespaces: provider.deploy.as_ref().and_then(|d| d.type_)
                == Some(DeployModeType::GatewayNamespace),
            zones: provider.proxy_topology_injector.as_ref().and_then(|p| p.disabled) != Some(true),
            controller: settings.gateway.controller_name.clone(),
            ..Self::new(namespace, own.unwrap_or(image))
        }
    }

    /// Images that nobody asked for, by the container that has them.
    pub(super) fn default_images(&self) -> [(&str, &str); 2] {
        [("envoy", &self.envoy_image), ("shutdown-manager", &self.shutdown_image)]
    }

    /// Name of the control plane's xDS server in the cluster, without the final dot.
    #[must_use]
    pub fn xds_host(&self) -> String {
        format!("envoy-gateway.{}.svc.{}", self.namespace, self.dns_domain)
    }

    /// Adds the labels of the writer.
    pub(super) fn stamp(&self, object: &mut Object, term: u64, digest: &str) {
        compare::stamp(object, term, digest);
        object.tree["metadata"]["labels"][compare::VERSION] = self.version_label().into();
        if self.gateway_namespaces {
            object.tree["metadata"]["labels"][compare::CONTROLLER] = self.identity().into();
        }
    }

    /// Whether the object is of a fleet of this control plane. In its own namespace all fleets are.
    pub(super) fn owns(&self, live: &Live) -> bool {
        !self.gateway_namespaces || live.label(compare::CONTROLLER) == Some(&self.identity())
    }

    /// The control plane that wrote it, if that is another one than this by what it says of itself.
    pub(super) fn is_of_another(&self, live: &Live) -> bool {
        self.gateway_namespaces && live.label(compare::CONTROLLER).is_some_and(|c| c != self.identity())
    }

    /// The version that wrote it, if that is newer than this one (semantic versioning, build metadata ignored). What cannot
    /// be read as a version is none.
    pub(super) fn newer(&self, live: &Live) -> Option<Version> {
        let wrote = Version::parse(live.label(compare::VERSION)?).ok()?;
        (wrote.cmp_precedence(&self.version) == Ordering::Greater).then_some(wrote)
    }

    /// The version as the value of a label: without build metadata, whose sign labels do not take.
    fn version_label(&self) -> String {
        let mut version = Version { build: BuildMetadata::EMPTY, ..self.version.clone() };
        if version.to_string().len() > LABEL {
            version.pre = Prerelease::EMPTY;
        }
        version.to_string()
    }

    fn identity(&self) -> String {
        compare::hex(&format!("{}/{}", self.namespace, self.controller))
    }
}
