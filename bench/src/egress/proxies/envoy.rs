//! Envoy as the package of `PyPI` has it, a worker per thread, as a dynamic forward proxy: an allow rule by zone and port,
//! names resolved by c-ares over the same DNS, a line in its access log for each call. Governed calls have a listener of
//! their own: the path is rewritten, the credential added, and the origin is one that stands in the configuration, over
//! verified TLS. Left out, in its favour: nobody is asked who they are, and addresses are not vetted.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Governed, Kind, Proxy, wait_until};
use crate::egress::names::{API, CONNECTION, CREDENTIAL, Places, ZONE, address_of};
use crate::server::{free_port, fresh, http, program, spawn};
use crate::{Result, peers};

pub fn start(binary: &Path, scratch: &Path, places: &Places, threads: usize) -> Result<Proxy> {
    let data = fresh(scratch, "envoy")?;
    let (proxy, governed, admin) = (free_port()?, free_port()?, free_port()?);
    let config = data.join("envoy.yaml");
    fs::write(
        &config,
        TEMPLATE
            .replace("@ADMIN", &admin.port().to_string())
            .replace("@PROXY", &proxy.port().to_string())
            .replace("@GOVERNED", &governed.port().to_string())
            .replace("@LOG", &data.join("access.log").display().to_string())
            .replace("@DNS", &places.dns.port().to_string())
            .replace("@DOMAINS", &places.ports().map(|port| format!("\"*.{ZONE}:{port}\"")).join(", "))
            .replace("@CONNECTION", CONNECTION)
            .replace("@API", API)
            .replace("@ADDRESS", &address_of(0).to_string())
            .replace("@TLS", &places.tls.to_string())
            .replace("@CREDENTIAL", CREDENTIAL)
            .replace("@ROOTS", &places.roots.display().to_string()),
    )?;
    let log = data.join("output.log");
    let mut command = program(binary);
    command.args(["--disable-hot-restart", "--log-level", "warning", "--concurrency", &threads.to_string(), "-c"]);
    let mut child = spawn(command.arg(&config), &log)?;
    wait_until(&mut child, &log, || matches!(http(admin, "GET", "/ready", ""), Ok((200, _))))?;
    Ok(Proxy {
        kind: Kind::Envoy,
        data,
        proxy,
        governed: (governed, Governed::Path),
        fixed: None,
        grant: None,
        metrics: None,
        child,
        home: None,
    })
}

pub fn version(binary: &Path) -> String {
    // It says its path first.
    let said = peers::version(&mut Command::new(binary));
    said.rsplit_once("version: ").map_or_else(|| said.clone(), |(_, version)| format!("Envoy {version}"))
}

/// What is not said has its default, but for the bounds on connections (1,024 by default), which the load exceeds.
const TEMPLATE: &str = r#"admin: {address: {socket_address: {address: 127.0.0.1, port_value: @ADMIN}}}
static_resources:
  listeners:
  - name: proxy
    address: {socket_address: {address: 127.0.0.1, port_value: @PROXY}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: proxy
          access_log: &log
          - name: envoy.access_loggers.file
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
              path: @LOG
          upgrade_configs: [{upgrade_type: CONNECT}]
          http_filters:
          - name: envoy.filters.http.dynamic_forward_proxy
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_forward_proxy.v3.FilterConfig
              dns_cache_config: &dns
                name: dns
                dns_lookup_family: V4_ONLY
                typed_dns_resolver_config:
                  name: envoy.network.dns_resolver.cares
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
                    resolvers: [{socket_address: {address: 127.0.0.1, port_value: @DNS}}]
                    dns_resolver_options: {no_default_search_domain: true}
          - &router
            name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
          route_config:
            virtual_hosts:
            - name: allowed
              domains: [@DOMAINS]
              routes:
              - match: {connect_matcher: {}}
                route: {cluster: named, timeout: 0s, upgrade_configs: [{upgrade_type: CONNECT, connect_config: {}}]}
              - {match: {prefix: "/"}, route: {cluster: named}}
  - name: governed
    address: {socket_address: {address: 127.0.0.1, port_value: @GOVERNED}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: governed
          access_log: *log
          http_filters: [*router]
          route_config:
            virtual_hosts:
            - name: governed
              domains: ["*"]
              routes:
              - match: {prefix: "/c/@CONNECTION/"}
                route: {cluster: provider, prefix_rewrite: "/", host_rewrite_literal: "@API:@TLS"}
                request_headers_to_add:
                - {header: {key: authorization, value: "Bearer @CREDENTIAL"}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
  clusters:
  - name: named
    lb_policy: CLUSTER_PROVIDED
    cluster_type:
      name: envoy.clusters.dynamic_forward_proxy
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.clusters.dynamic_forward_proxy.v3.ClusterConfig
        dns_cache_config: *dns
    circuit_breakers: &wide
      thresholds: [{max_connections: 100000, max_pending_requests: 100000, max_requests: 100000}]
  - name: provider
    type: STATIC
    load_assignment:
      cluster_name: provider
      endpoints:
      - lb_endpoints: [{endpoint: {address: {socket_address: {address: @ADDRESS, port_value: @TLS}}}}]
    circuit_breakers: *wide
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: @API
        common_tls_context:
          validation_context:
            trusted_ca: {filename: @ROOTS}
            match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: @API}}]
"#;
