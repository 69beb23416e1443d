# The bridge and nothing else: one static binary, the certificate authorities,
# and a user that is not root.
#
#   docker build -t mcp-bridge .
#   docker run --rm -p 127.0.0.1:8080:8080 mcp-bridge serve --demo --listen 0.0.0.0:8080 --insecure --allow-host localhost
#
# There is no shell, no Node and no Python in here. docs/containers.md shows how
# to put the bridge into an image that has the server you want to run, and why
# the second command line says what it says.

# It is compiled on the machine that builds, for the one that the image is for.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
# The dependencies first: they change less often than the source.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# grpcnotrace: the exporter of OpenTelemetry links gRPC, whose debugging page brings html/template, and with
# that in it the linker keeps every method of every type. The bridge does not use that page.
ARG TARGETOS TARGETARCH
# What "mcp-bridge version" says; there is no repository here to learn it from.
ARG VERSION
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -tags grpcnotrace -trimpath \
 -ldflags "-s -w -X github.com/mcp-bridge/mcp-bridge/internal/buildinfo.release=$VERSION" -o /image/mcp-bridge ./cmd/mcp-bridge
# What an empty image lacks: names for the user, and a place for temporary files.
RUN mkdir -p /image/etc/ssl/certs /image/home/nonroot /image/tmp \
 && echo 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' > /image/etc/passwd \
 && echo 'nonroot:x:65532:' > /image/etc/group \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
 && chown 65532:65532 /image/home/nonroot \
 && chmod 1777 /image/tmp

FROM scratch
COPY --from=build /image/ /
ENV HOME=/home/nonroot
WORKDIR /home/nonroot
# By number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 8080
# The exec form: the bridge is process 1, gets SIGTERM itself, and reaps what
# its servers leave behind.
ENTRYPOINT ["/mcp-bridge"]
# Help and not a server: a container has to listen on all of its addresses to be
# reached at all, and that is for whoever runs it to say.
CMD ["help"]
