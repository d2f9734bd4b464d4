"""All that crosses a process border: contracts, streams, rpc, http, telemetry, settings, lifecycle, errors."""
