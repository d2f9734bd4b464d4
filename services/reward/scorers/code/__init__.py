"""Programs as answers, run against their row's tests in a sandbox."""
