// Traffic for egress.py: a server, and a client that times itself.
//
//   traffic serve PORT                                    at 127.0.0.1; says "up"
//   traffic connect|request|down|up|hold HOST PORT COUNT [PROXY_PORT]
//
// connect: COUNT connections one after another, each until the first byte comes back; prints the median in µs. request:
// COUNT HTTP requests on one connection; prints how many in a second. down, up: COUNT bytes on one connection; prints
// GB/s. hold: COUNT connections at a time; says "held" and waits for the end of its standard input. With a port of a
// proxy, connections go through CONNECT at 127.0.0.1.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kBuffer = 256 << 10 };
static const char kAnswer[] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";

static double Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void Write(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent <= 0) err(1, "send");
    bytes += sent;
    size -= (size_t)sent;
  }
}

// Sends or receives that many bytes of no meaning.
static int Stream(int fd, int sends, uint64_t size) {
  char* buffer = calloc(1, kBuffer);
  while (size > 0) {
    const size_t part = size < kBuffer ? size : kBuffer;
    const ssize_t moved = sends ? send(fd, buffer, part, MSG_NOSIGNAL) : recv(fd, buffer, part, 0);
    if (moved <= 0) break;
    size -= (uint64_t)moved;
  }
  free(buffer);
  return size == 0;
}

static void Requests(int fd) {
  char bytes[4096];
  int matched = 1;  // of "\n\r\n"
  ssize_t size;
  while ((size = recv(fd, bytes, sizeof(bytes), 0)) > 0) {
    for (ssize_t i = 0; i < size; ++i) {
      matched = bytes[i] == "\n\r\n"[matched] ? matched + 1 : bytes[i] == '\n' ? 1 : 0;
      if (matched < 3) continue;
      matched = 0;
      Write(fd, kAnswer, sizeof(kAnswer) - 1);
    }
  }
}

static void* Serve(void* argument) {
  const int fd = (int)(intptr_t)argument;
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  char kind = 0;
  uint64_t size = 0;
  if (recv(fd, &kind, 1, 0) == 1) {
    if (kind == 'c') {
      do {
        if (send(fd, &kind, 1, MSG_NOSIGNAL) != 1) break;
      } while (recv(fd, &kind, 1, 0) == 1);
    } else if (kind == 'G') {
      Requests(fd);
    } else if (recv(fd, &size, sizeof(size), MSG_WAITALL) == sizeof(size) && Stream(fd, kind == 'd', size) &&
               kind == 'u') {
      send(fd, &kind, 1, MSG_NOSIGNAL);
    }
  }
  close(fd);
  return NULL;
}

static int RunServer(uint16_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in place = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(listener, (struct sockaddr*)&place, sizeof(place)) != 0 || listen(listener, 4096) != 0) err(1, "listen");
  puts("up");
  fflush(stdout);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 128 << 10);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  for (;;) {
    const int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0) continue;
    pthread_t thread;
    if (pthread_create(&thread, &small, Serve, (void*)(intptr_t)client) != 0) close(client);
  }
}

static struct sockaddr_in destination;
static const char *host, *port, *proxy;

static void Resolve(const char* name, const char* service) {
  struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
  const int fault = getaddrinfo(name, service, &hints, &found);
  if (fault != 0) errx(1, "%s: %s", name, gai_strerror(fault));
  memcpy(&destination, found->ai_addr, sizeof(destination));
}

static int Connect(void) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (fd < 0 || connect(fd, (struct sockaddr*)&destination, sizeof(destination)) != 0) err(1, "connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (proxy == NULL) return fd;
  char text[512];
  const int size =
      snprintf(text, sizeof(text), "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n", host, port, host, port);
  Write(fd, text, (size_t)size);
  size_t got = 0;
  while (got < 4 || memcmp(text + got - 4, "\r\n\r\n", 4) != 0) {
    if (got == sizeof(text) || recv(fd, text + got, 1, 0) != 1) errx(1, "the proxy refused");
    ++got;
  }
  if (strncmp(text, "HTTP/1.", 7) != 0 || strncmp(text + 8, " 200", 4) != 0) errx(1, "the proxy refused");
  return fd;
}

static void Exchange(int fd) {
  char byte = 'c';
  Write(fd, &byte, 1);
  if (recv(fd, &byte, 1, 0) != 1) err(1, "recv");
}

static int Compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}

static double Connections(uint64_t count) {
  double* times = calloc(count, sizeof(double));
  for (uint64_t i = 0; i < count; ++i) {
    const double begin = Now();
    const int fd = Connect();
    Exchange(fd);
    times[i] = (Now() - begin) * 1e6;
    close(fd);
  }
  qsort(times, count, sizeof(double), Compare);
  return times[count / 2];
}

static double HttpRequests(uint64_t count) {
  const int fd = Connect();
  char text[512];
  const int size = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s:%s\r\n\r\n", host, port);
  const double begin = Now();
  for (uint64_t i = 0; i < count; ++i) {
    char answer[sizeof(kAnswer)];
    Write(fd, text, (size_t)size);
    if (recv(fd, answer, sizeof(kAnswer) - 1, MSG_WAITALL) != sizeof(kAnswer) - 1) err(1, "recv");
  }
  return (double)count / (Now() - begin);
}

static double Bulk(char kind, uint64_t size) {
  const int fd = Connect();
  const double begin = Now();
  Write(fd, &kind, 1);
  Write(fd, (const char*)&size, sizeof(size));
  if (!Stream(fd, kind == 'u', size)) err(1, "the stream ended early");
  if (kind == 'u' && recv(fd, &kind, 1, 0) != 1) err(1, "recv");
  return (double)size / 1e9 / (Now() - begin);
}

static void Hold(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) Exchange(Connect());
  puts("held");
  fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}

int main(int count, char** words) {
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (count == 3 && strcmp(words[1], "serve") == 0) return RunServer((uint16_t)atoi(words[2]));
  if (count < 5) errx(2, "usage: see the head of traffic.c");
  host = words[2];
  port = words[3];
  proxy = count > 5 ? words[5] : NULL;
  if (proxy != NULL) {
    Resolve("127.0.0.1", proxy);
  } else {
    Resolve(host, port);
  }
  const uint64_t amount = strtoull(words[4], NULL, 10);
  const char* mode = words[1];
  if (strcmp(mode, "hold") == 0) {
    Hold(amount);
  } else if (strcmp(mode, "connect") == 0) {
    printf("%.3f\n", Connections(amount));
  } else if (strcmp(mode, "request") == 0) {
    printf("%.3f\n", HttpRequests(amount));
  } else {
    printf("%.4f\n", Bulk(mode[0], amount));
  }
  return 0;
}
