"""The only way out of the reward service: one endpoint a client, with checked addresses, deadlines and caps."""

from headrace.services.reward.endpoint.client import Endpoint
from headrace.services.reward.endpoint.errors import EndpointError, Kind
from headrace.services.reward.endpoint.request import RequestBudget
from headrace.services.reward.endpoint.together import together

__all__ = ["Endpoint", "EndpointError", "Kind", "RequestBudget", "together"]
