/* SPDX-License-Identifier: MIT
 * device.c - backend "sim": devices that hold no values. Memory is a count of bytes and an address that
 * nothing reads; streams and events are clocks (sim.h). */
#include <stdlib.h>

#include "sim.h"

#define DEVICES SIM_MAX_RANKS

static int32_t device_count(void *state, uint32_t *out_count, bs_error *err) {
  (void)state;
  (void)err;
  *out_count = DEVICES;
  return BS_OK;
}

static int32_t device_info(void *state, uint32_t index, bs_device_info *out_info, bs_error *err) {
  const sim_plugin *plugin = state;
  if (index >= DEVICES)
    return bs_fail(err, BS_UNAVAILABLE, "BS-SIM-DEVICE", "device %u asked, backend sim has %u", index,
                   DEVICES);
  out_info->memory_bytes = plugin->machine.mem_bytes;
  snprintf(out_info->name, sizeof out_info->name, "simulated");
  snprintf(out_info->detail, sizeof out_info->detail, "no values; machine %s", plugin->machine.label);
  return BS_OK;
}

/* In a world of this plugin the running rank has its device already. */
static int32_t device_open(void *state, uint32_t index, void **out_device, bs_error *err) {
  sim_plugin *plugin = state;
  sim_rank *rank = sim_rank_now(plugin);
  (void)index;
  if (rank == NULL) rank = plugin->host->alloc(plugin->host->ctx, sizeof *rank, 64);
  if (rank == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a device object");
  rank->plugin = plugin;
  *out_device = rank;
  return BS_OK;
}

static void device_close(void *device) {
  sim_rank *rank = device;
  if (rank == NULL) return;
  sim_blocks_free(rank);
  if (rank->world == NULL) rank->plugin->host->free(rank->plugin->host->ctx, rank);
}

/* ---- memory ------------------------------------------------------------------------------------ */

static int32_t full(uint64_t bytes, uint64_t taken, uint64_t limit, bs_error *err) {
  bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY",
          "a simulated device of %llu bytes has no room for %llu more: %llu are taken",
          (unsigned long long)limit, (unsigned long long)bytes, (unsigned long long)taken);
  return bs_fail_hint(err, "more ranks, a smaller model.N, or plugins.sim.mem_bytes=0");
}

int32_t sim_full(const sim_rank *rank, bs_error *err) {
  return full(rank->bytes_refused, rank->bytes_taken, rank->plugin->machine.mem_bytes, err);
}

int32_t sim_room(sim_rank *rank, uint64_t bytes, bs_error *err) {
  const uint64_t limit = rank->plugin->machine.mem_bytes;
  if (limit == 0 || (bytes <= limit && rank->bytes_now <= limit - bytes)) return BS_OK;
  rank->bytes_refused = bytes;
  rank->bytes_taken = rank->bytes_now;
  return sim_full(rank, err);
}

int32_t sim_block_add(sim_rank *rank, uint64_t first, uint64_t bytes, bs_error *err) {
  if (rank->blocks == NULL || rank->nblocks == rank->blocks_capacity) {
    const uint32_t capacity = rank->blocks_capacity > 0 ? 2 * rank->blocks_capacity : 8;
    sim_block *grown = realloc(rank->blocks, capacity * sizeof *grown);
    if (grown == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a table");
    rank->blocks = grown;
    rank->blocks_capacity = capacity;
  }
  rank->blocks[rank->nblocks++] = (sim_block){.first = first, .bytes = bytes};
  rank->bytes_now += bytes;
  if (rank->bytes_now > rank->bytes_peak) rank->bytes_peak = rank->bytes_now;
  return BS_OK;
}

void sim_block_drop(sim_rank *rank, uint64_t first) {
  for (uint32_t i = rank->nblocks; i-- > 0;) {
    if (rank->blocks[i].first != first) continue;
    rank->bytes_now -= rank->blocks[i].bytes;
    memmove(&rank->blocks[i], &rank->blocks[i + 1], (rank->nblocks - i - 1) * sizeof *rank->blocks);
    rank->nblocks--;
    return;
  }
}

void sim_blocks_free(sim_rank *rank) {
  free(rank->blocks);
  rank->blocks = NULL;
  rank->nblocks = rank->blocks_capacity = 0;
}

/* Allocates after the last allocation: freed addresses below it are used again when all above are freed
 * too. */
static int32_t mem_alloc(void *device, uint64_t bytes, uint64_t align, void **out_ptr, bs_error *err) {
  sim_rank *rank = device;
  const sim_plugin *plugin = rank->plugin;
  const sim_block *last = rank->nblocks > 0 ? &rank->blocks[rank->nblocks - 1] : NULL;
  uint64_t first = last != NULL ? last->first + last->bytes : 0;
  if (align < 64) align = 64;
  first = (first + align - 1) / align * align;
  int32_t rc = sim_room(rank, bytes, err);
  if (rc != BS_OK) return rc;
  if (bytes > plugin->range || first > plugin->range - bytes)
    return full(bytes, rank->bytes_now, plugin->range, err);
  rc = sim_block_add(rank, first, bytes, err);
  if (rc == BS_OK) *out_ptr = plugin->base + first;
  return rc;
}

static void mem_free(void *device, void *ptr) {
  sim_rank *rank = device;
  sim_block_drop(rank, (uint64_t)((char *)ptr - rank->plugin->base));
}

static void copy_within(sim_rank *rank, sim_time *time, uint64_t bytes) {
  const sim_time before = *time;
  const sim_step said = {.bytes = bytes};
  sim_roof roof = rank->plugin->machine.roof;
  roof.sharers = rank->sharers;
  sim_time_spend(time, SIM_MEMORY, sim_memory_ps(&roof, bytes));
  sim_step_add(rank, "copy", NULL, &before, time, &said);
}

/* Bytes within the device are read and written; what comes from the host is not charged. */
static int32_t mem_copy(void *device, void *dst, const void *src, uint64_t bytes, uint32_t kind,
                        bs_stream *stream, bs_error *err) {
  sim_rank *rank = device;
  sim_time *time = sim_stream_time(rank, stream);
  (void)dst;
  (void)src;
  switch (kind) {
    case BS_COPY_HOST_TO_DEVICE:
      return BS_OK;
    case BS_COPY_DEVICE_TO_DEVICE:
      sim_time_follow(time, &rank->host);
      copy_within(rank, time, sim_times(bytes, 2));
      return BS_OK;
    case BS_COPY_DEVICE_TO_HOST:
      bs_fail(err, BS_UNSUPPORTED, "BS-SIM-VALUES", "backend sim holds no values: there are none to read");
      return bs_fail_hint(err, "--backend virtual:ref has values and the same times");
    default:
      return bs_fail(err, BS_INVALID_ARGUMENT, "BS-SIM-COPY", "unknown copy kind %u", kind);
  }
}

static int32_t source_read(void *device, const bs_source *source, int64_t row, const bs_partition *cols,
                           bs_tensor *out, bs_error *err) {
  (void)device;
  (void)source;
  (void)row;
  (void)cols;
  (void)out;
  (void)err;
  return BS_OK;
}

static int32_t device_state(void *device, bs_device_state *out_state, bs_error *err) {
  const sim_rank *rank = device;
  bs_device_state mine;
  (void)err;
  memset(&mine, 0, sizeof mine);
  mine.memory_peak_bytes = rank->bytes_peak;
  bs_out_copy(out_state, &mine, sizeof mine);
  return BS_OK;
}

/* ---- streams and events ------------------------------------------------------------------------ */

static sim_stream *make_stream(const sim_rank *rank, bs_error *err) {
  sim_stream *s = rank->plugin->host->alloc(rank->plugin->host->ctx, sizeof *s, 64);
  if (s == NULL) bs_fail(err, BS_NO_MEMORY, "BS-SIM-MEMORY", "no memory for a stream");
  return s;
}

static int32_t stream_create(void *device, bs_stream **out_stream, bs_error *err) {
  sim_rank *rank = device;
  sim_stream *s = make_stream(rank, err);
  if (s == NULL) return BS_NO_MEMORY;
  s->lane = SIM_LANE_STREAMS + rank->nstreams++ % (SIM_LANE_COLLECTIVES - SIM_LANE_STREAMS);
  *out_stream = (bs_stream *)(void *)s;
  return BS_OK;
}

static void stream_destroy(void *device, bs_stream *stream) {
  const sim_rank *rank = device;
  rank->plugin->host->free(rank->plugin->host->ctx, stream);
}

static int32_t stream_sync(void *device, bs_stream *stream, bs_error *err) {
  sim_rank *rank = device;
  (void)err;
  sim_time_follow(&rank->host, sim_stream_time(rank, stream));
  return BS_OK;
}

static int32_t event_create(void *device, bs_event **out_event, bs_error *err) {
  sim_stream *made = make_stream(device, err); /* a stream and an event are a time each */
  *out_event = (bs_event *)(void *)made;
  return made != NULL ? BS_OK : BS_NO_MEMORY;
}

static void event_destroy(void *device, bs_event *event) {
  stream_destroy(device, (bs_stream *)(void *)event);
}

static sim_time *event_time(bs_event *event) {
  return &((sim_stream *)(void *)event)->time;
}

/* The stream has begun what the host had given it: both count. */
static int32_t event_record(void *device, bs_event *event, bs_stream *stream, bs_error *err) {
  sim_rank *rank = device;
  (void)err;
  *event_time(event) = *sim_stream_time(rank, stream);
  sim_time_follow(event_time(event), &rank->host);
  return BS_OK;
}

static int32_t event_elapsed(void *device, bs_event *start, bs_event *stop, double *out_seconds,
                             bs_error *err) {
  const uint64_t from = event_time(start)->now, to = event_time(stop)->now;
  (void)device;
  (void)err;
  *out_seconds = to >= from ? (double)(to - from) * 1e-12 : -((double)(from - to) * 1e-12);
  return BS_OK;
}

static int32_t stream_wait(void *device, bs_stream *stream, bs_event *event, bs_error *err) {
  (void)err;
  sim_time_follow(sim_stream_time(device, stream), event_time(event));
  return BS_OK;
}

const bs_src_loc sim_backend_at = {__FILE__, (uint32_t)__LINE__ + 1u, 0u};
const bs_backend sim_backend = {
    .struct_size = (uint32_t)sizeof(bs_backend),
    .flags = BS_BACKEND_PHANTOM,
    .name = "sim",
    .summary = "virtual devices that take time and hold no values",
    .device_count = device_count,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .mem_copy = mem_copy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_elapsed = event_elapsed,
    .source_read = source_read,
    .device_state = device_state,
    .stream_wait = stream_wait,
};
