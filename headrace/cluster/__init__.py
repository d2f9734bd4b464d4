"""Manifests of one run for a Kubernetes cluster; `manifests` is a link to `deploy/kubernetes`."""
