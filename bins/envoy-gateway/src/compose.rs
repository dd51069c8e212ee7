//! Wiring and supervision: which tasks there are, and in which order they end.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use admission::Admission;
use anyhow::{Context, Result, bail};
use api::config::{EnvoyGateway, InfrastructureProviderType, ProviderType, ResourceProviderType};
use envoy::bootstrap::{Bootstrap, Protocol, Socket, XdsServer, sds_certificate, sds_trusted_ca};
use provider::{FileSource, Source, last_good};
use reconcile::{Backoff, Gated, Wanted};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tracing::{error, info};

use crate::{
    admin,
    cli::CommonArgs,
    cluster::Cluster,
    convert,
    engine::{self, EngineHandle, Outputs},
    fleets::{self, InCluster, Task},
    homes::Homes,
    leader,
    local::LocalFleets,
    logging, replicas,
    shared::{Progress, Shared, Watched},
    tokens::{Kept, Tokens},
    topology,
};

/// How often the certificates are looked at.
const CERTIFICATES: Duration = Duration::from_secs(3600);

/// Runs the control plane until a signal or until a task ends that should not.
pub(crate) fn run(loaded: settings::Loaded, file: Option<PathBuf>, args: CommonArgs) -> Result<ExitCode> {
    let log = logging::init(&loaded.config.logging, std::env::var("RUST_LOG").ok().as_deref())?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no async runtime")?;
    let code = runtime.block_on(serve(loaded.config, file, args, log));
    // Blocking look-ups that hang do not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// Servers that listen.
struct Listeners {
    xds: TcpListener,
    admin: TcpListener,
    health: TcpListener,
    metrics: Option<TcpListener>,
    webhook: Option<TcpListener>,
    peers: Option<TcpListener>,
}

async fn serve(settings: EnvoyGateway, file: Option<PathBuf>, args: CommonArgs, log: logging::Log) -> Result<ExitCode> {
    let started = Instant::now();
    let host = settings.provider.custom.as_ref().and_then(|c| c.infrastructure.as_ref());
    let on_this_host = settings.provider.type_ == ProviderType::Custom
        && host.is_some_and(|i| i.type_ == InfrastructureProviderType::Host);
    let homes = Homes::of(host.and_then(|h| h.host.as_ref()), args.home.as_deref())?;
    let listeners = listen(&settings, &args, on_this_host).await?;
    let addresses = tell_addresses(&listeners, args.addresses_file.as_ref())?;

    let (role, elector) = leader::role(&settings, &args).await?;
    let cache = xds::Cache::new();
    let (mut server, mut facts) = xds::Server::new(cache.clone(), convert::xds_config(&settings));
    let replicas = listeners.peers.as_ref().map(|_| replicas::new()).transpose()?;
    if let Some(replicas) = &replicas {
        server = server.with_hand_over(replicas.peers.hand_over());
    }
    let (statuses, fleets) = (Wanted::new(), Wanted::new());
    let (fleet_changes, fleets_changed) = watch::channel(0);
    let progress = Arc::new(Progress::default());
    let stopping = Arc::new(AtomicBool::new(false));
    let outputs = Outputs {
        cache: cache.clone(),
        statuses: statuses.clone(),
        fleets: fleets.clone(),
        fleet_changes,
        progress: progress.clone(),
        on_this_host,
    };
    let engine = engine::start(convert::translator_config(&settings), outputs)?;

    let mut tasks = Tasks::default();
    let (stop, stopped) = watch::channel(Stage::Running);
    let until = |stage: Stage| {
        let mut stopped = stopped.clone();
        async move {
            // The sender lives as long as the tasks.
            let _ = stopped.wait_for(|s| *s >= stage).await;
        }
    };

    // xDS over mutual TLS: with the Secret that certgen made, or with certificates of our own that renew themselves.
    let store = certs::Store::new(homes.certs());
    let credentials = Arc::new(match mounted(&settings, &args) {
        Some(folder) => certs::Reloading::open(&folder, &["h2"]).with_context(|| {
            format!(
                "{} has no certificate: `envoy-gateway certgen` makes the Secret that is mounted there",
                folder.display()
            )
        })?,
        None => {
            let spec = certs::Spec::new(convert::controller_namespace(), convert::dns_domain());
            store.ensure(&spec, certs::now(), false).context("the certificates of the control plane cannot be made")?;
            tasks.spawn("certificates", certs::keep(store.clone(), spec, CERTIFICATES, certs::now));
            certs::Reloading::open(store.dir(certs::Identity::EnvoyGateway), &["h2"])?
        }
    });
    if let Some(listener) = listeners.webhook {
        let injector = topology::Injector::new(leader::kube_config(&args).await?, credentials.clone())?;
        tasks.spawn("topology injector", injector.serve(listener, until(Stage::Over)));
    }
    let by_token = Tokens::open(&settings, &args, &fleets, &progress).await?;
    let (certificate, open) = (credentials.clone(), by_token.is_some());
    let tls = xds::TlsConfig::new(move || {
        let now = certificate.current();
        if open { now.open_server.clone() } else { now.server.clone() }
    });
    if let Some(by_token) = by_token {
        server = server.with_admission(by_token.admit());
        let key = credentials.clone();
        let kept = settings::last_good(&settings).map(|chosen| Kept {
            folder: chosen.folder,
            secret: Arc::new(move || key.current().material.key.clone().into_bytes()),
        });
        let end = until(Stage::Over);
        tasks.spawn("token keys", async move {
            tokio::select! { () = by_token.run(kept) => {}, () = end => {} }
        });
    }
    let (connections, xds_metrics) = (server.connections(), server.metrics());
    tasks.spawn("xds server", server.serve(listeners.xds, Some(tls), until(Stage::Streams)));

    // Proxies of this host.
    let mut proxies = None;
    if on_this_host {
        let envoy = infra::local::EnvoyBinary::locate(args.envoy_path.clone(), homes.data.clone()).await?;
        info!(path = %envoy.path.display(), version = %envoy.version, "Envoy");
        let options = infra::local::Options::new(envoy.path, homes.state.clone(), homes.runtime.clone());
        let (local, runner) = infra::local::new(options).context("the folders for local proxies cannot be used")?;
        proxies = Some(local.statuses());
        let writer = LocalFleets { local, bootstrap: bootstrap(&store, addresses.xds)? };
        let gate = Gated::new(writer, fleets.clone(), role.clone(), Backoff::default());
        tasks.spawn("infra gate", gate.run(until(Stage::Writers)));
        tasks.spawn("proxies", runner.run(until(Stage::Proxies)));
    }

    // Sources.
    let (mut problems, mut watched) = (None, None);
    match source(&settings) {
        SourceOf::Files(paths) => {
            let (source, seen) = FileSource::new(paths, Arc::new(Admission::new()));
            problems = Some(seen);
            let batches = engine.batches;
            let end = until(Stage::Writers);
            tasks.spawn("files", async move {
                tokio::select! { () = source.run(batches) => {}, () = end => {} }
            });
        }
        SourceOf::Cluster => {
            let cluster = Cluster::open(&settings, &args).await?;
            let mut troubles = None;
            let facts = status::Facts::in_mode(statuses.clone(), fleets::options(&settings).gateway_namespaces);
            let writers = cluster.writers(&statuses, facts.clone(), &role);
            if settings.provider.type_ == ProviderType::Kubernetes {
                let fleets = InCluster::new(&cluster, &settings, &fleets, &role);
                troubles = Some(fleets.troubles());
                let ca = mounted(&settings, &args).unwrap_or_else(|| store.dir(certs::Identity::EnvoyGateway));
                let (live, end) = (after_live(&progress), || until(Stage::Writers));
                for (name, task) in fleets.tasks(ca.join("ca.crt"), fleets_changed, facts, live, end) {
                    tasks.spawn(name, task);
                }
            }
            let (statuses_gate, finalizers_gate) = (writers.statuses, writers.finalizers);
            let rivals = writers.claims.rivals();
            let claims = writers.claims.run(role.clone(), until(Stage::Writers));
            for (name, gate) in [
                ("status gate", Box::pin(statuses_gate.run(until(Stage::Writers))) as Task),
                ("finalizer gate", Box::pin(finalizers_gate.run(until(Stage::Writers)))),
                ("claims", Box::pin(claims)),
            ] {
                let (live, end) = (after_live(&progress), until(Stage::Writers));
                tasks.spawn(name, async move {
                    tokio::select! {
                        () = end => return,
                        () = live => {}
                    }
                    gate.await;
                });
            }
            tasks.spawn("status look", cluster.follow(statuses.clone(), writers.classes));
            let handle = cluster.handle.clone();
            watched = Some(Watched {
                handle: cluster.handle,
                statuses: writers.counters,
                contested: writers.contested,
                rivals,
                applied: cluster.clients.applied,
                troubles,
            });
            if let (Some(listener), Some(replicas)) = (listeners.peers, &replicas) {
                let (translated, ending) = (progress.clone(), stopping.clone());
                let setup = replicas::Setup {
                    listener,
                    fixed: args.peer.clone(),
                    config: leader::kube_config(&args).await?,
                    credentials: credentials.clone(),
                    engine: engine.handle.clone(),
                    progress: progress.clone(),
                    cache: cache.clone(),
                    handle: handle.clone(),
                    ready: Box::new(move || {
                        translated.translated.load(Ordering::Acquire) && !ending.load(Ordering::Acquire)
                    }),
                    replicas: replicas.clone(),
                };
                tasks.spawn("replicas", replicas::run(setup, until(Stage::Streams))?);
            }
            let batches = engine.batches;
            let end = until(Stage::Writers);
            match settings::last_good(&settings) {
                Some(chosen) => {
                    let key = credentials.clone();
                    let options = last_good::Options {
                        folder: chosen.folder,
                        after: chosen.after,
                        controller: settings.gateway.controller_name.as_str().into(),
                        secret: Arc::new(move || key.current().material.key.clone().into_bytes()),
                        clock: jiff::Timestamp::now,
                    };
                    let (source, saver, kept) = last_good::remember(cluster.source, handle, options);
                    let _ = progress.state.set(kept);
                    tasks.spawn("state", saver.run(until(Stage::Writers)));
                    tasks.spawn("cluster", async move {
                        tokio::select! { () = source.run(batches) => {}, () = end => {} }
                    });
                }
                None => tasks.spawn("cluster", async move {
                    tokio::select! { () = cluster.source.run(batches) => {}, () = end => {} }
                }),
            }
        }
    }
    let engine_thread = engine.thread;
    tasks.spawn("engine", async move {
        let ended = tokio::task::spawn_blocking(move || engine_thread.join()).await;
        if !matches!(ended, Ok(Ok(()))) {
            error!("the engine died");
        }
    });
    tasks.spawn("settings", follow(settings.clone(), file, engine.handle.clone(), log));
    let tracer = engine.handle.clone();
    tasks.spawn("xds feedback", async move {
        while let Some(fact) = facts.recv().await {
            report(&fact);
            tracer.fact(fact).await;
        }
    });

    let shared = Shared {
        started,
        config: Arc::new(serde_json::to_value(&settings)?),
        role,
        engine: engine.handle,
        progress,
        cache,
        connections,
        xds_metrics,
        statuses,
        proxies,
        problems,
        watched,
        replicas,
        stopping: stopping.clone(),
    };
    for (name, listener, router) in [
        ("admin server", Some(listeners.admin), admin::admin(shared.clone())),
        ("health server", Some(listeners.health), admin::health(shared.clone())),
        ("metrics server", listeners.metrics, admin::prometheus(shared.clone())),
    ] {
        let Some(listener) = listener else { continue };
        let end = until(Stage::Over);
        tasks.spawn(name, async move {
            if let Err(e) = axum::serve(listener, router).with_graceful_shutdown(end).await {
                error!(error = %e, "{name}");
            }
        });
    }
    // From here on only the tasks hold the role channel, so that the lease can be let go when the writers are done.
    drop(shared);
    info!(version = env!("CARGO_PKG_VERSION"), "running");
    let code = supervise(&mut tasks, elector, &stop, &stopping).await;
    drop(stop);
    code
}

/// Waits until what the cluster says, not what was saved of it, has been translated.
fn after_live(progress: &Arc<Progress>) -> impl Future<Output = ()> + Send + use<> {
    let progress = progress.clone();
    async move { progress.live().await }
}

/// Follows the configuration file while this runs, and the calendar for certificates that expire.
async fn follow(mut current: EnvoyGateway, file: Option<PathBuf>, engine: EngineHandle, log: logging::Log) {
    let mut watch = None;
    if let Some(path) = file {
        match settings::watch(&path, std::env::vars(), current.clone()) {
            Ok(w) => watch = Some(w),
            Err(e) => tracing::warn!(error = %e, "changes of the configuration file take a restart"),
        }
    }
    loop {
        let changed = async {
            match &mut watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            settings::Loaded { config: changed, .. } = changed => {
                log.apply(&changed.logging);
                let live = |s: &EnvoyGateway| EnvoyGateway {
                    logging: s.logging.clone(),
                    gateway: s.gateway.clone(),
                    extension_apis: s.extension_apis.clone(),
                    runtime_flags: s.runtime_flags.clone(),
                    envoy_proxy: s.envoy_proxy.clone(),
                    ..current.clone()
                };
                if live(&changed) == changed {
                    info!("the changed configuration is in force");
                } else {
                    tracing::warn!("of the changed configuration, logging and what shapes the translation are in force; the rest takes a restart");
                }
                current = live(&changed);
            }
            () = tokio::time::sleep(CERTIFICATES) => {}
        }
        engine.reconfigure(convert::translator_config(&current)).await;
    }
}

/// Stages of the end, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    /// Sources and writers end; writes under way get their answers.
    Writers,
    /// Streams of proxies end.
    Streams,
    /// Local proxies are drained.
    Proxies,
    /// Everything ends.
    Over,
}

/// Named tasks. One that ends before it was asked to ends the process.
#[derive(Debug, Default)]
struct Tasks {
    set: JoinSet<()>,
    names: BTreeMap<tokio::task::Id, &'static str>,
}

// === impl Tasks ===

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
    }

    /// The next task that ends, and how.
    async fn next(&mut self) -> Option<(&'static str, Option<String>)> {
        let (id, panic) = match self.set.join_next_with_id().await? {
            Ok((id, ())) => (id, None),
            Err(e) => (e.id(), Some(e.to_string())),
        };
        Some((self.names.remove(&id).unwrap_or("?"), panic))
    }

    /// Waits until all tasks of that name ended, for so long.
    async fn wait_for(&mut self, names: &[&str], limit: Duration) {
        let all = async {
            while self.names.values().any(|n| names.contains(n)) {
                if self.next().await.is_none() {
                    return;
                }
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            error!(tasks = ?names, "did not end in time");
        }
    }
}

async fn supervise(
    tasks: &mut Tasks,
    elector: Option<election::ElectorThread>,
    stop: &watch::Sender<Stage>,
    stopping: &AtomicBool,
) -> Result<ExitCode> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut elector = elector;
    let mut code = ExitCode::SUCCESS;
    tokio::select! {
        _ = term.recv() => info!("SIGTERM: ending"),
        _ = int.recv() => info!("SIGINT: ending"),
        Some((name, panic)) = tasks.next() => {
            error!(task = name, panic, "ended unexpectedly");
            code = ExitCode::FAILURE;
        }
        ended = async { match &mut elector { Some(e) => e.ended().await, None => std::future::pending().await } } => {
            match ended {
                Ok(outcome) if outcome.exit_code() != 0 => {
                    error!("{outcome}");
                    return Ok(ExitCode::from(outcome.exit_code()));
                }
                Ok(outcome) => error!(%outcome, "the election ended unexpectedly"),
                Err(e) => error!(error = %e, "the election ended unexpectedly"),
            }
            code = ExitCode::FAILURE;
            elector = None;
        }
    }
    stopping.store(true, Ordering::Release);
    stop.send_replace(Stage::Writers);
    tasks
        .wait_for(
            &["infra gate", "status gate", "finalizer gate", "claims", "files", "cluster", "state"],
            Duration::from_secs(10),
        )
        .await;
    if let Some(elector) = elector {
        match elector.stop().await {
            Ok(outcome) => info!(%outcome, "election ended"),
            Err(e) => error!(error = %e, "election"),
        }
    }
    stop.send_replace(Stage::Streams);
    tasks.wait_for(&["xds server"], Duration::from_secs(10)).await;
    stop.send_replace(Stage::Proxies);
    tasks.wait_for(&["proxies"], Duration::from_secs(90)).await;
    stop.send_replace(Stage::Over);
    tasks.wait_for(&["admin server", "health server", "metrics server"], Duration::from_secs(2)).await;
    Ok(code)
}

/// Whether this is a pod of the cluster that it is to serve: outside of one there is a kubeconfig.
fn in_pod(settings: &EnvoyGateway, args: &CommonArgs) -> bool {
    settings.provider.type_ == ProviderType::Kubernetes && args.kubeconfig.is_none()
}

/// The folder of a certificate that others renew.
fn mounted(settings: &EnvoyGateway, args: &CommonArgs) -> Option<PathBuf> {
    args.certs_dir.clone().or_else(|| in_pod(settings, args).then(|| PathBuf::from("/certs")))
}

enum SourceOf {
    Files(Vec<PathBuf>),
    Cluster,
}

fn source(settings: &EnvoyGateway) -> SourceOf {
    let custom = settings.provider.custom.as_ref().filter(|_| settings.provider.type_ == ProviderType::Custom);
    match custom.map(|c| &c.resource) {
        Some(r) if r.type_ == ResourceProviderType::File => {
            SourceOf::Files(r.file.iter().flat_map(|f| f.paths.iter().map(PathBuf::from)).collect())
        }
        _ => SourceOf::Cluster,
    }
}

async fn listen(settings: &EnvoyGateway, args: &CommonArgs, on_this_host: bool) -> Result<Listeners> {
    // Proxies of this host come over loopback; those of a cluster from anywhere.
    let any = IpAddr::V4(if on_this_host { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED });
    let admin_host: IpAddr = match settings.admin.address.host.as_str() {
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse().with_context(|| format!("admin.address.host {host:?} is no IP address"))?,
    };
    let admin_port = args.admin_port.unwrap_or(settings.admin.address.port);
    let webhook_off =
        settings.provider.kubernetes.proxy_topology_injector.as_ref().is_some_and(|i| i.disabled == Some(true));
    let webhook_port =
        args.webhook_port.or_else(|| in_pod(settings, args).then_some(topology::PORT)).filter(|_| !webhook_off);
    let metrics_off =
        settings.telemetry.metrics.as_ref().and_then(|m| m.prometheus.as_ref()).is_some_and(|p| p.disable);
    Ok(Listeners {
        xds: bind("xDS", SocketAddr::new(any, args.xds_port.unwrap_or(18000)), "--xds-port").await?,
        admin: bind("admin", SocketAddr::new(admin_host, admin_port), "--admin-port").await?,
        health: bind("health", SocketAddr::new(any, args.health_port.unwrap_or(8081)), "--health-port").await?,
        metrics: if metrics_off {
            None
        } else {
            Some(bind("metrics", SocketAddr::new(any, args.metrics_port.unwrap_or(19001)), "--metrics-port").await?)
        },
        webhook: match webhook_port {
            Some(port) => Some(bind("webhook", SocketAddr::new(any, port), "--webhook-port").await?),
            None => None,
        },
        peers: match args.peer_port.or_else(|| in_pod(settings, args).then_some(peers::PORT)) {
            Some(port) => Some(bind("peer", SocketAddr::new(any, port), "--peer-port").await?),
            None => None,
        },
    })
}

async fn bind(what: &str, address: SocketAddr, flag: &str) -> Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(l) => Ok(l),
        Err(e) => bail!(
            "the {what} server cannot listen on {address}: {e}; choose another port with {flag} (0: any free one)"
        ),
    }
}

/// Addresses that others need.
struct Addresses {
    xds: SocketAddr,
}

fn tell_addresses(listeners: &Listeners, file: Option<&PathBuf>) -> Result<Addresses> {
    let xds = listeners.xds.local_addr()?;
    let of = |listener: &Option<TcpListener>| listener.as_ref().and_then(|l| l.local_addr().ok());
    let (metrics, webhook, peers) = (of(&listeners.metrics), of(&listeners.webhook), of(&listeners.peers));
    let (admin, health) = (listeners.admin.local_addr()?, listeners.health.local_addr()?);
    info!(%xds, %admin, %health, metrics = metrics.map(|m| m.to_string()), "listening");
    if let Some(path) = file {
        let text =
            serde_json::json!({"xds": xds, "admin": admin, "health": health, "metrics": metrics, "webhook": webhook, "peers": peers})
                .to_string();
        let tmp = path.with_extension("tmp");
        std::fs::write(&tmp, text)
            .and_then(|()| std::fs::rename(&tmp, path))
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(Addresses { xds })
}

/// The bootstrap of all local proxies. It names no port that two proxies could share: the admin page listens on a port of
/// the system's choice.
fn bootstrap(store: &certs::Store, xds: SocketAddr) -> Result<Vec<u8>> {
    let dir = std::path::absolute(store.dir(certs::Identity::Envoy))?;
    let in_dir = |name: &str| dir.join(name).display().to_string();
    let secrets = [
        ("xds-certificate.json", sds_certificate(&in_dir("tls.crt"), &in_dir("tls.key"))),
        ("xds-trusted-ca.json", sds_trusted_ca(&in_dir("ca.crt"), certs::Identity::EnvoyGateway.name())),
    ];
    for (name, secret) in secrets {
        let path = dir.join(name);
        std::fs::write(&path, secret.to_string()).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let server = XdsServer {
        address: Socket { host: xds.ip().to_string().into(), port: xds.port() },
        certificate: in_dir("xds-certificate.json").into(),
        trusted_ca: in_dir("xds-trusted-ca.json").into(),
        token: None,
        protocol: Protocol::Delta,
    };
    let mut bootstrap = Bootstrap::new(server);
    bootstrap.admin.port = 0;
    Ok(bootstrap.to_yaml().into_bytes())
}

/// What proxies say, for the log; refusals are loud.
fn report(fact: &xds::Feedback) {
    match fact {
        xds::Feedback::Connected { proxy } => info!(node = %proxy.node, group = %proxy.group, "proxy connected"),
        xds::Feedback::Disconnected { proxy } => info!(node = %proxy.node, group = %proxy.group, "proxy disconnected"),
        xds::Feedback::Nacked { proxy, type_url, resources, detail, .. } => {
            let names: Vec<&str> = resources.iter().map(|r| &*r.name).collect();
            error!(node = %proxy.node, group = %proxy.group, r#type = type_url.as_str(), ?names, detail, "refused by the proxy");
        }
        xds::Feedback::TimedOut { proxy, type_url, suspects } => {
            let names: Vec<&str> = suspects.iter().map(|r| &*r.name).collect();
            error!(node = %proxy.node, group = %proxy.group, r#type = type_url.as_str(), ?names, "not answered in time");
        }
        xds::Feedback::Acked { .. } => {}
    }
}
