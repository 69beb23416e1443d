// Package packaging has what the bridge is published with: the scripts and units of the Linux packages, the npm packages
// and the images' tests. It is a module of its own, so that what they need is no dependency of the bridge.
package packaging
