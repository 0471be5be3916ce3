/* Preloaded into the program, it shifts the clocks it sees: the wall clock, and the one that
 * counts sleep, each by the seconds that the file $CLOCK_SHIFT holds at that moment (two
 * 32-bit numbers, written at once). The monotonic clock stays: a suspend is both, and it stands still.
 * A timer that tells of such changes is a FIFO, $CLOCK_SHIFT.told, which whoever makes them writes to. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t *shift;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_SHIFT");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *at = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) shift = at;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int answer = syscall(SYS_clock_gettime, id, now);
    if (answer == 0 && shift) {
        uint64_t both = *shift;
        if (id == CLOCK_REALTIME) now->tv_sec += (int32_t)both;
        if (id == CLOCK_BOOTTIME) now->tv_sec += (int32_t)(both >> 32);
    }
    return answer;
}

int timerfd_create(int id, int flags) {
    char path[4096];
    const char *shift_path = getenv("CLOCK_SHIFT");
    snprintf(path, sizeof path, "%s.told", shift_path ? shift_path : "");
    return open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before) {
    return 0;
}
