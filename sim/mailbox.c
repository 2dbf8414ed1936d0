/* SPDX-License-Identifier: MIT
 * mailbox.c - see mailbox.h. Open addressing, at most half full. */
#include "sim/mailbox.h"

#include <stdlib.h>

enum { FIRST = 64 };

static uint32_t place_of(const sim_mail *mail, uint32_t from, uint32_t to) {
  uint64_t x = ((uint64_t)from << 32 | to) * UINT64_C(0x9e3779b97f4a7c15);
  x ^= x >> 29;
  return (uint32_t)(x >> 16) & mail->mask;
}

int sim_mail_open(sim_mail *mail) {
  mail->mask = 2 * FIRST - 1;
  mail->room_queues = FIRST;
  mail->room_letters = FIRST;
  mail->free_letter = SIM_NONE;
  mail->queues = malloc(FIRST * sizeof *mail->queues);
  mail->letters = malloc(FIRST * sizeof *mail->letters);
  mail->table = malloc(2 * FIRST * sizeof *mail->table);
  for (uint32_t i = 0; mail->table != NULL && i <= mail->mask; i++) mail->table[i] = SIM_NONE;
  return mail->queues != NULL && mail->letters != NULL && mail->table != NULL;
}

void sim_mail_close(sim_mail *mail) {
  free(mail->queues);
  free(mail->letters);
  free(mail->table);
}

uint32_t sim_mail_find(const sim_mail *mail, uint32_t from, uint32_t to, uint32_t *hint) {
  const uint32_t last = *hint;
  if (last < mail->n_queues && mail->queues[last].from == from && mail->queues[last].to == to) return last;
  for (uint32_t i = place_of(mail, from, to); mail->table[i] != SIM_NONE; i = (i + 1) & mail->mask) {
    const sim_queue *q = &mail->queues[mail->table[i]];
    if (q->from == from && q->to == to) return *hint = mail->table[i];
  }
  return SIM_NONE;
}

static void put(sim_mail *mail, uint32_t queue) {
  uint32_t i = place_of(mail, mail->queues[queue].from, mail->queues[queue].to);
  while (mail->table[i] != SIM_NONE) i = (i + 1) & mail->mask;
  mail->table[i] = queue;
}

/* Drops the empty queues; doubles the room when more than a half is left. */
static int make_room(sim_mail *mail) {
  uint32_t kept = 0;
  for (uint32_t q = 0; q < mail->n_queues; q++)
    if (mail->queues[q].head != SIM_NONE) mail->queues[kept++] = mail->queues[q];
  mail->n_queues = kept;
  if (kept > mail->room_queues / 2) {
    if (mail->room_queues > UINT32_MAX / 4) return 0;
    const uint32_t room = mail->room_queues * 2;
    sim_queue *queues = realloc(mail->queues, room * sizeof *queues);
    if (queues == NULL) return 0;
    mail->queues = queues;
    uint32_t *table = realloc(mail->table, 2 * (size_t)room * sizeof *table);
    if (table == NULL) return 0;
    mail->table = table;
    mail->room_queues = room;
    mail->mask = 2 * room - 1;
  }
  for (uint32_t i = 0; i <= mail->mask; i++) mail->table[i] = SIM_NONE;
  for (uint32_t q = 0; q < kept; q++) put(mail, q);
  return 1;
}

static uint32_t open_queue(sim_mail *mail, uint32_t from, uint32_t to, uint32_t *hint) {
  uint32_t queue = sim_mail_find(mail, from, to, hint);
  if (queue != SIM_NONE) return queue;
  if (mail->n_queues == mail->room_queues && !make_room(mail)) return SIM_NONE;
  queue = mail->n_queues++;
  mail->queues[queue] = (sim_queue){from, to, SIM_NONE, SIM_NONE};
  put(mail, queue);
  return *hint = queue;
}

static uint32_t new_letter(sim_mail *mail) {
  uint32_t l = mail->free_letter;
  if (l != SIM_NONE) {
    mail->free_letter = mail->letters[l].next;
    return l;
  }
  if (mail->n_letters == mail->room_letters) {
    if (mail->room_letters > UINT32_MAX / 4) return SIM_NONE;
    const uint32_t room = mail->room_letters + mail->room_letters / 2;
    sim_letter *letters = realloc(mail->letters, room * sizeof *letters);
    if (letters == NULL) return SIM_NONE;
    mail->letters = letters;
    mail->room_letters = room;
  }
  return mail->n_letters++;
}

int sim_mail_push(sim_mail *mail, uint32_t from, uint32_t to, uint32_t *hint, const sim_letter *letter) {
  const uint32_t queue = open_queue(mail, from, to, hint);
  if (queue == SIM_NONE) return 0;
  const uint32_t l = new_letter(mail);
  if (l == SIM_NONE) return 0;
  sim_queue *q = &mail->queues[queue];
  mail->letters[l] = *letter;
  mail->letters[l].next = SIM_NONE;
  if (q->head == SIM_NONE)
    q->head = l;
  else
    mail->letters[q->tail].next = l;
  q->tail = l;
  return 1;
}

void sim_mail_pop(sim_mail *mail, uint32_t queue, sim_letter *out_letter) {
  sim_queue *q = &mail->queues[queue];
  const uint32_t l = q->head;
  *out_letter = mail->letters[l];
  q->head = mail->letters[l].next;
  mail->letters[l].next = mail->free_letter;
  mail->free_letter = l;
}
