//go:build tools

// Names the backend that the suite's objects run, so that the module file keeps what it needs.
package conformance

import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
