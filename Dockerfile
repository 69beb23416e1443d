# The bridge and nothing else: one static binary, the certificate authorities,
# and a user that is not root. "--target node" and "--target uv" have what servers
# from npm and PyPI need, too.
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

# uv is taken as it is, so that no program of the image's processor has to be run to build it.
FROM --platform=$BUILDPLATFORM python:3.13-slim AS uv-build
ARG TARGETARCH
# Such as ==1.2.3; the newest if it is empty.
ARG UV_VERSION
RUN case $TARGETARCH in amd64) arch=x86_64 ;; arm64) arch=aarch64 ;; *) exit 1 ;; esac \
 && pip install --no-cache-dir --only-binary :all: --platform manylinux2014_$arch --target /uv "uv$UV_VERSION"

# For "serve -- npx -y PACKAGE".
FROM node:22-slim AS node
ARG VERSION REVISION
LABEL org.opencontainers.image.title="mcp-bridge with Node" \
 org.opencontainers.image.description="Converts between the transports of the Model Context Protocol; with Node and npx" \
 org.opencontainers.image.source="https://github.com/mcp-bridge/mcp-bridge" org.opencontainers.image.licenses="MIT" \
 org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION"
COPY --from=build /image/mcp-bridge /usr/local/bin/mcp-bridge
ENV HOME=/home/node
WORKDIR /home/node
# The user node of the base, by number.
USER 1000:1000
EXPOSE 8080
HEALTHCHECK CMD ["mcp-bridge", "health"]
ENTRYPOINT ["mcp-bridge"]
CMD ["help"]

# For "serve -- uvx PACKAGE".
FROM python:3.13-slim AS uv
ARG VERSION REVISION
LABEL org.opencontainers.image.title="mcp-bridge with uv" \
 org.opencontainers.image.description="Converts between the transports of the Model Context Protocol; with Python, uv and uvx" \
 org.opencontainers.image.source="https://github.com/mcp-bridge/mcp-bridge" org.opencontainers.image.licenses="MIT" \
 org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION"
COPY --from=uv-build /uv/bin/uv /uv/bin/uvx /usr/local/bin/
COPY --from=build /image/mcp-bridge /usr/local/bin/mcp-bridge
COPY --from=build --chown=65532:65532 /image/home/nonroot /home/nonroot
# USER and LOGNAME are the name of a user that /etc/passwd does not have.
ENV HOME=/home/nonroot USER=nonroot LOGNAME=nonroot
WORKDIR /home/nonroot
USER 65532:65532
EXPOSE 8080
HEALTHCHECK CMD ["mcp-bridge", "health"]
ENTRYPOINT ["mcp-bridge"]
CMD ["help"]

FROM scratch
ARG VERSION REVISION
LABEL org.opencontainers.image.title="mcp-bridge" \
 org.opencontainers.image.description="Converts between the transports of the Model Context Protocol" \
 org.opencontainers.image.source="https://github.com/mcp-bridge/mcp-bridge" org.opencontainers.image.licenses="MIT" \
 org.opencontainers.image.version="$VERSION" org.opencontainers.image.revision="$REVISION"
COPY --from=build /image/ /
ENV HOME=/home/nonroot
WORKDIR /home/nonroot
# By number, so that Kubernetes can see that it is not root (runAsNonRoot).
USER 65532:65532
EXPOSE 8080
# It asks 127.0.0.1:8080; with another address, give --health-cmd, or turn it off with --no-healthcheck.
HEALTHCHECK CMD ["/mcp-bridge", "health"]
# The exec form: the bridge is process 1, gets SIGTERM itself, and reaps what
# its servers leave behind.
ENTRYPOINT ["/mcp-bridge"]
# Help and not a server: a container has to listen on all of its addresses to be
# reached at all, and that is for whoever runs it to say.
CMD ["help"]
