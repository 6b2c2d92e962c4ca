/* A file layer that loses what was not synced. Preloaded into a process, it remembers what each
 * block of the store's files held when the file was last synced; at the Nth write it puts the
 * lost blocks back as they were and kills the process, as a power cut would.
 *
 * UNSYNCED_AT: the number of the write to die at. UNSYNCED_SEED: 0 loses every unsynced block,
 * another number about half of them, chosen by it. Only files whose path holds "scrubjay.db"
 * count, and not the shared-memory file, which is rebuilt after a crash.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define BLOCK 4096

typedef struct undo {
    struct undo *next;
    char path[512];
    off_t block;
    ssize_t length; /* bytes the file had in this block; -1: it ended before it */
    char data[BLOCK];
} undo;

typedef struct size {
    struct size *next;
    char path[512];
    off_t bytes;
} size;

static undo *undos;
static size *sizes;
static long writes, die_at, seed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);

__attribute__((constructor)) static void begin(void) {
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    const char *at = getenv("UNSYNCED_AT"), *with = getenv("UNSYNCED_SEED");
    die_at = at ? atol(at) : 0;
    seed = with ? atol(with) : 0;
}

static int is_ours(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, 511);
    if (n <= 0) return 0;
    path[n] = 0;
    return strstr(path, "scrubjay.db") != NULL && strstr(path, "-shm") == NULL;
}

static void remember(int fd, const char *path, off_t from, off_t to) {
    struct stat st;
    fstat(fd, &st);
    size *s;
    for (s = sizes; s && strcmp(s->path, path); s = s->next) {}
    if (!s) {
        s = calloc(1, sizeof *s);
        strcpy(s->path, path);
        s->bytes = st.st_size;
        s->next = sizes;
        sizes = s;
    }
    for (off_t block = from / BLOCK; block * BLOCK < to; block++) {
        undo *u;
        for (u = undos; u && (u->block != block || strcmp(u->path, path)); u = u->next) {}
        if (u) continue;
        u = calloc(1, sizeof *u);
        strcpy(u->path, path);
        u->block = block;
        u->length = block * BLOCK < st.st_size ? real_pread(fd, u->data, BLOCK, block * BLOCK) : -1;
        u->next = undos;
        undos = u;
    }
}

static void forget(const char *path) {
    for (undo **u = &undos; *u;) {
        if (strcmp((*u)->path, path)) { u = &(*u)->next; continue; }
        undo *gone = *u;
        *u = gone->next;
        free(gone);
    }
    for (size **s = &sizes; *s;) {
        if (strcmp((*s)->path, path)) { s = &(*s)->next; continue; }
        size *gone = *s;
        *s = gone->next;
        free(gone);
    }
}

static int is_lost(const undo *u) {
    if (!seed) return 1;
    uint64_t x = (uint64_t)seed * 0x9E3779B97F4A7C15u + (uint64_t)u->block * 0xBF58476D1CE4E5B9u;
    x += strlen(u->path);
    x ^= x >> 31;
    x *= 0x94D049BB133111EBu;
    return (x >> 40) & 1;
}

static void power_cut(void) {
    for (undo *u = undos; u; u = u->next) {
        if (!is_lost(u)) continue;
        int fd = open(u->path, O_RDWR);
        if (fd < 0) continue;
        struct stat st;
        fstat(fd, &st);
        off_t start = u->block * BLOCK;
        if (start < st.st_size || u->length > 0) { /* what it did not hold comes back as zeros */
            off_t held = st.st_size - start < BLOCK ? st.st_size - start : BLOCK;
            if (u->length > held) held = u->length;
            if (held > 0) real_pwrite(fd, u->data, (size_t)held, start);
        }
        close(fd);
    }
    for (size *s = sizes; s && !seed; s = s->next) {
        int fd = open(s->path, O_RDWR);
        if (fd < 0) continue;
        real_ftruncate(fd, s->bytes);
        close(fd);
    }
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

ssize_t pwrite64(int fd, const void *data, size_t count, off_t at) {
    char path[512];
    if (!is_ours(fd, path)) return real_pwrite(fd, data, count, at);
    pthread_mutex_lock(&lock);
    remember(fd, path, at, at + (off_t)count);
    ssize_t done = real_pwrite(fd, data, count, at);
    if (die_at && ++writes >= die_at) power_cut();
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
    return pwrite64(fd, data, count, at);
}

static int synced(int fd, int (*real)(int)) {
    char path[512];
    if (!is_ours(fd, path)) return real(fd);
    pthread_mutex_lock(&lock);
    int outcome = real(fd);
    if (outcome == 0) forget(path);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int fsync(int fd) { return synced(fd, real_fsync); }
int fdatasync(int fd) { return synced(fd, real_fdatasync); }

int ftruncate64(int fd, off_t length) {
    char path[512];
    if (!is_ours(fd, path)) return real_ftruncate(fd, length);
    pthread_mutex_lock(&lock);
    struct stat st;
    fstat(fd, &st);
    if (length < st.st_size) remember(fd, path, length, st.st_size);
    int outcome = real_ftruncate(fd, length);
    pthread_mutex_unlock(&lock);
    return outcome;
}

int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }
