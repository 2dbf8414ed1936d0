/* SPDX-License-Identifier: MIT
 * mailbox.h - messages under way: one FIFO per (source, destination) in one hash table. A pair takes memory
 * from its first message on; pairs without messages are swept out before the table grows. */
#ifndef BS_SIM_MAILBOX_H
#define BS_SIM_MAILBOX_H
#include <stddef.h>
#include <stdint.h>

#define SIM_NONE UINT32_MAX

typedef struct sim_letter {
  uint64_t start, arrival, latency, wire, port, in_wire, bytes, fingerprint;
  const char *site;
  void *payload;
  uint32_t next;
  uint32_t together; /* of an exchange: it holds no slot */
} sim_letter;

typedef struct sim_queue {
  uint32_t from, to, head, tail; /* letters; head SIM_NONE: empty */
} sim_queue;

typedef struct sim_mail {
  sim_queue *queues;
  sim_letter *letters;
  uint32_t *table; /* index of a queue, or SIM_NONE */
  uint32_t mask, n_queues, room_queues, n_letters, room_letters, free_letter;
} sim_mail;

/* All 0 before. 0: no memory. */
int sim_mail_open(sim_mail *mail);
void sim_mail_close(sim_mail *mail);
/* The queue of a pair; SIM_NONE: they have no queue. *hint is the place where it was last found; it is
 * updated. */
uint32_t sim_mail_find(const sim_mail *mail, uint32_t from, uint32_t to, uint32_t *hint);
/* Appends a copy of *letter. 0: no memory. */
int sim_mail_push(sim_mail *mail, uint32_t from, uint32_t to, uint32_t *hint, const sim_letter *letter);
/* Takes the first letter of a queue that is not empty. */
void sim_mail_pop(sim_mail *mail, uint32_t queue, sim_letter *out_letter);
#endif
