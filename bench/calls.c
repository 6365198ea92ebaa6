/* What one system call costs, in nanoseconds each: calls SCALE DIRECTORY prints a JSON object. The same program inside and
   outside. SCALE shrinks the number of calls in a trial run; DIRECTORY may be written to.

   Opens to write and `connect` are calls that a sandbox observes: its filter hands them to the supervisor, which looks and
   lets the kernel decide. The paths and addresses of the refused ones lead nowhere outside either. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int udp;
static struct sockaddr_in nowhere;
static char own[4096];

static void Getppid(void) { syscall(SYS_getppid); }
static void OpenToRead(void) { close(open("/usr/bin/env", O_RDONLY | O_CLOEXEC)); }
static void OpenOwn(void) { close(open(own, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)); }
static void OpenToWrite(void) {
  int fd = open("/usr/caisson-bench-absent/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd >= 0) exit(3); /* it was to be refused */
}
static void Connect(void) { (void)!connect(udp, (struct sockaddr*)&nowhere, sizeof nowhere); }

static double Nanos(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static double scale = 1;

static double Measure(void (*call)(void), int usual_times) {
  int times = (int)(usual_times * scale);
  for (int i = 0; i < times / 10; ++i) call();
  double begin = Nanos();
  for (int i = 0; i < times; ++i) call();
  return (Nanos() - begin) / times;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  scale = atof(words[1]);
  snprintf(own, sizeof own, "%s/own", words[2]);
  udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  nowhere.sin_family = AF_INET;
  nowhere.sin_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &nowhere.sin_addr); /* TEST-NET-1; a datagram socket's connect sends nothing */
  printf("{\"getppid\": %.1f, ", Measure(Getppid, 200000));
  printf("\"open to read, close\": %.1f, ", Measure(OpenToRead, 20000));
  printf("\"open to write, close\": %.1f, ", Measure(OpenOwn, 2000));
  unlink(own);
  printf("\"open to write, refused\": %.1f, ", Measure(OpenToWrite, 2000));
  printf("\"connect, refused\": %.1f}\n", Measure(Connect, 2000));
  return 0;
}
