"""The only way out of the reward service: one endpoint a client, with checked addresses, deadlines and caps."""

from services.reward.endpoint.client import Endpoint
from services.reward.endpoint.errand import Errand, request_s
from services.reward.endpoint.errors import EndpointError, Kind
from services.reward.endpoint.together import together

__all__ = ["Endpoint", "EndpointError", "Errand", "Kind", "request_s", "together"]
