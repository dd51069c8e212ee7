//! The server of this project with a real Envoy: updates of every kind under requests that are not sent twice.

mod changes;
mod drains;
mod faults;
mod reconnects;

use std::time::Duration;

use envoy_facts::{
    backend::Backend,
    client::{Answer, H1},
    config::{Cluster, Item, Listener, endpoints, table},
    product::{Product, Wanted, config, drop_from, set},
    proxy::{Api, Envoy, Proxy, Setup, free_port, serves},
};
use xds::{Cache, Config, TypeUrl};

/// Envoy with a listener `in`, its table `table` and cluster `one`, served by this project.
struct Scene {
    product: Product,
    config: Config,
    wanted: Wanted,
    proxy: Proxy,
    port: u16,
    one: Backend,
    other: Backend,
}

impl Scene {
    /// `None`, said aloud, when there is no Envoy.
    async fn open() -> Option<Self> {
        Self::open_with(Api::Delta, config(), |port| Listener::http("in", port, "table")).await
    }

    async fn open_with(api: Api, config: Config, listener: impl FnOnce(u16) -> Listener) -> Option<Self> {
        let envoy = Envoy::find()?;
        let product = Product::start(config.clone()).await;
        let (one, other) = (Backend::start("one").await, Backend::start("other").await);
        let drain = config.drain_time.max(Duration::from_secs(1));
        let proxy = Setup { api, drain, ..Setup::new(product.port) }.start(&envoy);
        let port = free_port();
        let mut scene = Self { product, config, wanted: Wanted::new(), proxy, port, one, other };
        scene.cluster(&Cluster::eds("one"), scene.one.port);
        scene.set(&listener(port).item());
        scene.route("one");
        scene.publish();
        serves(port).await;
        scene.product.settled().await;
        Some(scene)
    }

    fn set(&mut self, item: &Item) {
        set(&mut self.wanted, item);
    }

    fn remove(&mut self, kind: TypeUrl, name: &str) {
        drop_from(&mut self.wanted, kind, name);
    }

    fn cluster(&mut self, cluster: &Cluster, port: u16) {
        let cluster = cluster.item();
        self.set(&endpoints(&cluster.name, &[port]));
        self.set(&cluster);
    }

    fn remove_cluster(&mut self, name: &str) {
        self.remove(TypeUrl::Cluster, name);
        self.remove(TypeUrl::ClusterLoadAssignment, name);
    }

    fn route(&mut self, cluster: &str) {
        self.set(&table("table", &[("/", cluster)]));
    }

    fn publish(&self) {
        self.product.publish(&self.wanted);
    }

    async fn get(&self, path: &str) -> Result<Answer, String> {
        H1::open(self.port).await?.get(path).await
    }

    /// Ends the server and starts another on its port that has the same cache.
    async fn restart(self) -> Self {
        let port = self.product.port;
        let cache = self.product.kill().await;
        let product = Product::start_on(port, cache, self.config.clone()).await;
        Self { product, ..self }
    }

    /// Ends the server; another replica, which has computed the same for itself, takes its place.
    async fn replace(self) -> Self {
        let port = self.product.port;
        self.product.kill().await;
        let product = Product::start_on(port, Cache::new(), self.config.clone()).await;
        let scene = Self { product, ..self };
        scene.publish();
        scene
    }
}
