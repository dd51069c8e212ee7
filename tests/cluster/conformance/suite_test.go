// The Gateway API conformance suite as a program: every option is one of the suite's own flags.
package conformance

import (
	"testing"

	suite "sigs.k8s.io/gateway-api/conformance"
)

func TestGatewayAPI(t *testing.T) { suite.RunConformance(t) }
