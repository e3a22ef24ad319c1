//! The words of `Proxy-Status` (RFC 9209, 2.3) that the product has a use for.

use std::fmt;

/// A proxy error type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    DnsTimeout,
    DnsError,
    DestinationIpProhibited,
    DestinationIpUnroutable,
    ConnectionRefused,
    ConnectionTerminated,
    ConnectionTimeout,
    ConnectionReadTimeout,
    ConnectionLimitReached,
    TlsProtocolError,
    TlsCertificateError,
    TlsAlertReceived,
    HttpRequestError,
    HttpRequestDenied,
    HttpResponseIncomplete,
    HttpResponseBodySize,
    HttpResponseTimeout,
    HttpUpgradeFailed,
    HttpProtocolError,
    ProxyInternalError,
    ProxyConfigurationError,
    ProxyLoopDetected,
}

impl ErrorType {
    /// The token, as it stands in the field.
    pub fn token(self) -> &'static str {
        match self {
            Self::DnsTimeout => "dns_timeout",
            Self::DnsError => "dns_error",
            Self::DestinationIpProhibited => "destination_ip_prohibited",
            Self::DestinationIpUnroutable => "destination_ip_unroutable",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionTerminated => "connection_terminated",
            Self::ConnectionTimeout => "connection_timeout",
            Self::ConnectionReadTimeout => "connection_read_timeout",
            Self::ConnectionLimitReached => "connection_limit_reached",
            Self::TlsProtocolError => "tls_protocol_error",
            Self::TlsCertificateError => "tls_certificate_error",
            Self::TlsAlertReceived => "tls_alert_received",
            Self::HttpRequestError => "http_request_error",
            Self::HttpRequestDenied => "http_request_denied",
            Self::HttpResponseIncomplete => "http_response_incomplete",
            Self::HttpResponseBodySize => "http_response_body_size",
            Self::HttpResponseTimeout => "http_response_timeout",
            Self::HttpUpgradeFailed => "http_upgrade_failed",
            Self::HttpProtocolError => "http_protocol_error",
            Self::ProxyInternalError => "proxy_internal_error",
            Self::ProxyConfigurationError => "proxy_configuration_error",
            Self::ProxyLoopDetected => "proxy_loop_detected",
        }
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}
