/* A paced OpenAI-like stream server for load_client.py, for rates at which a Python server would be the limit.

   usage: paced TTFT_US ITL_US TOKENS      prints its port; ends when stdin closes

   One thread, epoll, a heap of due times. Token k of a request is due at receipt + TTFT + k * ITL; every event carries
   "ts", the CLOCK_MONOTONIC nanosecond of its own send. The last token, the usage event and [DONE] leave in one send.
   It answers any POST, keeps connections alive, and ignores the body beyond its Content-Length. On SIGUSR1 and at its
   end it prints "late p50_us p99_us events" of what it sent since, so that the reader knows whether it kept the pace. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 16384, IN_BYTES = 1 << 16, LATE_MAX = 1 << 20 };

typedef struct {
  int64_t due;   /* of the next token */
  int fd, sent;  /* tokens sent */
  int have;      /* request bytes held */
  int want;      /* bytes of the whole request, 0 until its head is there */
  int slot;      /* in the heap, -1 outside */
  char in[IN_BYTES];
} Stream;

static Stream *streams[MAX_FD], *heap[MAX_FD];
static int n_heap, poller, tokens;
static int64_t ttft_ns, itl_ns;
static int32_t late_us[LATE_MAX];
static int64_t n_late;
static volatile sig_atomic_t report_now;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void place(Stream *s, int i) { heap[i] = s; s->slot = i; }

static void sift(int i) { /* restore the heap around i, up then down */
  Stream *s = heap[i];
  while (i > 0 && heap[(i - 1) / 2]->due > s->due) { place(heap[(i - 1) / 2], i); i = (i - 1) / 2; }
  for (int child; (child = 2 * i + 1) < n_heap; i = child) {
    if (child + 1 < n_heap && heap[child + 1]->due < heap[child]->due) child++;
    if (heap[child]->due >= s->due) break;
    place(heap[child], i);
  }
  place(s, i);
}

static void schedule(Stream *s, int64_t due) {
  s->due = due;
  if (s->slot < 0) { place(s, n_heap); n_heap++; }
  sift(s->slot);
}

static void unschedule(Stream *s) {
  if (s->slot < 0) return;
  int i = s->slot;
  s->slot = -1;
  if (i == --n_heap) return;
  place(heap[n_heap], i);
  sift(i);
}

static void drop(Stream *s) { unschedule(s); streams[s->fd] = NULL; close(s->fd); free(s); }

static int chunk(char *out, const char *data, int n) {
  int head = sprintf(out, "%x\r\n", n);
  memcpy(out + head, data, n);
  memcpy(out + head + n, "\r\n", 2);
  return head + n + 2;
}

static int put(Stream *s, const char *data, int n) { /* 0 when the peer is gone; a full buffer ends the stream too */
  return send(s->fd, data, n, MSG_NOSIGNAL) == n;
}

static void emit(Stream *s) {
  char event[512], out[2048];
  int64_t t = now_ns();
  late_us[n_late++ % LATE_MAX] = (int32_t)((t - s->due) / 1000);
  int last = s->sent + 1 == tokens;
  int n = sprintf(event,
    "data: {\"id\":\"cmpl-%08x\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"paced\",\"choices\":"
    "[{\"index\":0,\"text\":\" w%05d\",\"logprobs\":null,\"finish_reason\":%s,\"stop_reason\":null}],\"ts\":%lld}\n\n",
    s->fd, s->sent, last ? "\"length\"" : "null", (long long)t);
  int m = chunk(out, event, n);
  s->sent++;
  if (last) {
    n = sprintf(event,
      "data: {\"id\":\"cmpl-%08x\",\"object\":\"text_completion\",\"choices\":[],\"usage\":{\"prompt_tokens\":128,"
      "\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n", s->fd, tokens, tokens + 128);
    m += chunk(out + m, event, n);
    m += sprintf(out + m, "0\r\n\r\n");
  }
  if (!put(s, out, m)) { drop(s); return; }
  if (last) unschedule(s); else schedule(s, s->due + itl_ns);
}

static void begin(Stream *s) {
  static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  s->have = s->want = s->sent = 0;
  schedule(s, now_ns() + ttft_ns);
  if (!put(s, head, sizeof head - 1)) drop(s);
}

static void receive(Stream *s) {
  int n = recv(s->fd, s->in + s->have, IN_BYTES - 1 - s->have, 0);
  if (n <= 0) { if (n == 0 || errno != EAGAIN) drop(s); return; }
  s->have += n;
  s->in[s->have] = 0;
  if (!s->want) {
    char *end = strstr(s->in, "\r\n\r\n"), *length = strcasestr(s->in, "\r\ncontent-length:");
    if (!end) return;
    s->want = (int)(end + 4 - s->in) + (length && length < end ? atoi(length + 17) : 0);
    if (s->want >= IN_BYTES) { drop(s); return; }
  }
  if (s->have >= s->want) begin(s);
}

static int ascending(const void *a, const void *b) {
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static void report(void) {
  int n = n_late < LATE_MAX ? (int)n_late : LATE_MAX;
  qsort(late_us, n, sizeof *late_us, ascending);
  printf("late %d %d %lld\n", n ? late_us[n / 2] : -1, n ? late_us[(int)(n * 0.99)] : -1, (long long)n_late);
  fflush(stdout);
  n_late = 0;
}

static void on_signal(int number) { (void)number; report_now = 1; }

int main(int argc, char **argv) {
  if (argc != 4) { fprintf(stderr, "usage: paced TTFT_US ITL_US TOKENS\n"); return 2; }
  ttft_ns = atoll(argv[1]) * 1000; itl_ns = atoll(argv[2]) * 1000; tokens = atoi(argv[3]);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  signal(SIGUSR1, on_signal);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof a;
  if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 4096)) { perror("paced"); return 1; }
  getsockname(listener, (struct sockaddr *)&a, &size);
  poller = epoll_create1(0);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = listener}, got[1024];
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e);
  e.data.fd = 0;
  epoll_ctl(poller, EPOLL_CTL_ADD, 0, &e);
  printf("port %d\n", ntohs(a.sin_port));
  fflush(stdout);
  for (;;) {
    int64_t wait = n_heap ? heap[0]->due - now_ns() : 1000000000;
    struct timespec t = {.tv_sec = wait > 0 ? wait / 1000000000 : 0, .tv_nsec = wait > 0 ? wait % 1000000000 : 0};
    int n = epoll_pwait2(poller, got, 1024, &t, NULL);
    for (int i = 0; i < n; i++) {
      int fd = got[i].data.fd;
      if (fd == 0) { report(); return 0; }
      if (fd == listener) {
        int c;
        while ((c = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
          if (c >= MAX_FD) { close(c); continue; }
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          streams[c] = calloc(1, sizeof(Stream));
          streams[c]->fd = c;
          streams[c]->slot = -1;
          e.data.fd = c;
          epoll_ctl(poller, EPOLL_CTL_ADD, c, &e);
        }
      } else if (streams[fd]) receive(streams[fd]);
    }
    while (n_heap && heap[0]->due <= now_ns()) emit(heap[0]);
    if (report_now) { report_now = 0; report(); }
  }
}
