/* SPDX-License-Identifier: MIT
 * peers.h - the processes of a run whose ranks are processes. All run the same program on the same
 * configuration. Rank 0 leads: it decides the next step, judges, prints and writes. The others follow its
 * commands. The commands use a separate world, so they do not disturb a measured world. */
#ifndef BS_LAB_PEERS_H
#define BS_LAB_PEERS_H
#include "blockshock/blockshock.h"
#include "lab/yaml/config.h"

typedef struct bs_peers bs_peers;

/* Commands that the leader sends when a follower cannot know the next step. */
enum bs_word {
  BS_WORD_START = 1,    /* the phase begins */
  BS_WORD_BATCH = 2,    /* the arm's command `what` */
  BS_WORD_EXCHANGE = 3, /* time the collectives of the machine */
  BS_WORD_CLOSE = 4,    /* the arm is closed */
  BS_WORD_END = 5,      /* the phase has ended; with its status */
  BS_WORD_OPEN = 6,     /* rung `n` of the ladder becomes arm `arm` */
  BS_WORD_CHOSEN = 7,   /* the ladder is done; with its status */
  BS_WORD_CHUNKS = 8    /* overlap=auto is number `n` of bs_overlap_settle */
};
typedef struct bs_told {
  uint32_t word; /* enum bs_word */
  uint32_t what;
  uint64_t n, lead; /* BS_WORD_BATCH: calls that are timed, and untimed ones before */
  int32_t status;
  uint32_t arm; /* of several: the one that is meant */
} bs_told;

/* Joins the processes; *out_peers is NULL if the communicator starts its ranks itself, or world_size is 1.
 * config_hash: as in bs_world_options. */
int32_t bs_peers_open(bs_context *context, const char *comm, uint32_t world_size, double timeout_s,
                      bs_peers **out_peers, bs_error *err);
void bs_peers_close(bs_peers *peers);
/* 1: this process leads (also without peers). */
int bs_peers_lead(const bs_peers *peers);
/* 1: a message was lost: the others have ended, or will not come. */
int bs_peers_lost(const bs_peers *peers);
/* Before the processes open a world together: the followers wait here for as long as the leader judges. */
int32_t bs_peers_meet(bs_peers *peers, bs_error *err);
/* The leader's text (NUL-terminated) to all; the followers' *out_text is theirs to free. */
int32_t bs_peers_text(bs_peers *peers, const char *text, char **out_text, bs_error *err);
/* The leader sends a command; the followers receive it. */
int32_t bs_peers_tell(bs_peers *peers, const bs_told *told, bs_error *err);
/* Like bs_peers_tell, for followers that are present: waits at most `seconds` for the others. */
int32_t bs_peers_tell_soon(bs_peers *peers, const bs_told *told, double seconds, bs_error *err);
/* Waits in a follower until the phase, or the ladder, has ended, and returns its status; waits for each word
 * for `seconds`, 0: as long as rank 0 lives. */
int32_t bs_peers_await_end(bs_peers *peers, double seconds, int32_t *out_status, bs_error *err);
int32_t bs_peers_hear(bs_peers *peers, bs_told *out_told, bs_error *err);
/* Compares the configurations of all, and `extra` lines with them. BS_MISMATCH on each: the error names a
 * rank and a different key. Settings of output, which only rank 0 writes, are not compared. */
int32_t bs_peers_compare(bs_peers *peers, const bs_node *config, const char *extra, bs_error *err);

/* The communicator for work of a single process: `comm`, or threads if `comm` connects processes. */
const char *bs_peers_alone(const bs_context *context, const char *comm);
#endif
