// Makes steps of events: what was scheduled and how it ended are one step, and the attempts of a retry are one row.
import type { EventRow, Wait } from './api';

export type Kind = 'activity' | 'timer' | 'signal' | 'queue' | 'child' | 'detached' | 'value' | 'status' | 'life';
export type Outcome = 'open' | 'ok' | 'failed' | 'cancelled' | 'note';

export type Step = {
  /** The id of the event that began it. */
  id: number;
  kind: Kind;
  name: string;
  start: number;
  end: number | null;
  outcome: Outcome;
  first: EventRow;
  last: EventRow | null;
  wait: Wait | null;
};

/** One line of the timeline: a step, or all attempts of one. */
export type Lane = { id: number; kind: Kind; name: string; outcome: Outcome; attempts: Step[] };

const BEGINS: Record<string, Kind> = {
  ActivityScheduled: 'activity',
  TimerCreated: 'timer',
  ExternalSubscribed: 'signal',
  ExternalSubscribedPersistent: 'queue',
  SubOrchestrationScheduled: 'child',
};

const NOTES: Record<string, Kind> = {
  OrchestrationChained: 'detached',
  KeyValueSet: 'value',
  KeyValueCleared: 'value',
  KeyValuesCleared: 'value',
  CustomStatusUpdated: 'status',
  OrchestrationStarted: 'life',
  OrchestrationCompleted: 'life',
  OrchestrationFailed: 'life',
  OrchestrationContinuedAsNew: 'life',
  OrchestrationCancelRequested: 'life',
};

const WORDS: Record<string, string> = {
  OrchestrationStarted: 'Started',
  OrchestrationCompleted: 'Completed',
  OrchestrationFailed: 'Failed',
  OrchestrationContinuedAsNew: 'Continued as new',
  OrchestrationCancelRequested: 'Cancel requested',
  KeyValuesCleared: 'All values cleared',
  TimerCreated: 'Timer',
  CustomStatusUpdated: 'Custom status',
};

function outcome(end: EventRow): Outcome {
  if (end.kind.endsWith('Failed')) return 'failed';
  if (/Cancel/.test(end.kind)) return 'cancelled';
  return 'ok';
}

function note(event: EventRow): Outcome {
  if (event.kind === 'OrchestrationFailed') return 'failed';
  if (event.kind === 'OrchestrationCancelRequested') return 'cancelled';
  if (event.kind === 'OrchestrationCompleted') return 'ok';
  return 'note';
}

/** The steps of a history, in the order in which they began. Events must ascend. */
export function toSteps(events: EventRow[], waits: Wait[] = []): Step[] {
  const steps: Step[] = [];
  const byId = new Map<number, Step>();
  const waiting = new Map(waits.filter((w) => w.event_id !== null).map((w) => [w.event_id, w]));
  for (const event of events) {
    const begins = BEGINS[event.kind];
    const source = event.source_event_id === null ? undefined : byId.get(event.source_event_id ?? -1);
    if (begins) {
      const step: Step = {
        id: event.event_id,
        kind: begins,
        name: event.name ?? WORDS[event.kind] ?? event.kind,
        start: event.timestamp_ms,
        end: null,
        outcome: 'open',
        first: event,
        last: null,
        wait: waiting.get(event.event_id) ?? null,
      };
      steps.push(step);
      byId.set(step.id, step);
    } else if (source) {
      // A late completion of something that was cancelled does not change how it ended.
      if (!source.last || source.outcome === 'open') {
        source.last = event;
        source.end = event.timestamp_ms;
        source.outcome = outcome(event);
      }
    } else {
      steps.push({
        id: event.event_id,
        kind: NOTES[event.kind] ?? (event.kind.startsWith('External') ? 'signal' : 'life'),
        name: event.name ?? WORDS[event.kind] ?? event.kind,
        start: event.timestamp_ms,
        end: event.timestamp_ms,
        outcome: note(event),
        first: event,
        last: null,
        wait: null,
      });
    }
  }
  return steps;
}

const isBar = (step: Step) =>
  step.kind === 'activity' || step.kind === 'timer' || step.kind === 'signal' || step.kind === 'queue' || step.kind === 'child';

/**
 * The lines of the timeline. An activity that is scheduled again with the same input after it failed is another attempt
 * at the same thing; the timer between the two is the pause, and gets no line of its own.
 */
export function toLanes(steps: Step[]): Lane[] {
  const lanes: Lane[] = [];
  const failed = new Map<string, { lane: Lane; pause: Lane | null }>();
  let lastFailure: { lane: Lane; pause: Lane | null } | null = null;
  for (const step of steps) {
    if (!isBar(step) || (step.first.kind !== 'TimerCreated' && BEGINS[step.first.kind] === undefined)) continue;
    if (step.kind === 'activity') {
      const key = `${step.name}\u0000${step.first.payload?.text ?? ''}`;
      const before = failed.get(key);
      const last = before?.lane.attempts.at(-1);
      let lane: Lane;
      if (before && last && last.end !== null && last.end <= step.start) {
        lane = before.lane;
        lane.attempts.push(step);
        lane.outcome = step.outcome;
        if (before.pause) lanes.splice(lanes.indexOf(before.pause), 1);
      } else {
        lane = { id: step.id, kind: step.kind, name: step.name, outcome: step.outcome, attempts: [step] };
        lanes.push(lane);
      }
      failed.delete(key);
      if (step.outcome === 'failed') {
        const entry: { lane: Lane; pause: Lane | null } = { lane, pause: null };
        failed.set(key, entry);
        lastFailure = entry;
      }
      continue;
    }
    const lane: Lane = { id: step.id, kind: step.kind, name: step.name, outcome: step.outcome, attempts: [step] };
    lanes.push(lane);
    if (step.kind === 'timer' && lastFailure && !lastFailure.pause) {
      const end = lastFailure.lane.attempts.at(-1)?.end;
      if (end !== null && end !== undefined && end <= step.start) lastFailure.pause = lane;
      lastFailure = null;
    }
  }
  return lanes;
}

const isUnderWay = (wait: Wait) => wait.stage === 'running' || wait.stage === 'awaiting_completion';

/** Which attempt at an activity is under way or comes next, from 1, whoever tries again. */
export const attemptOf = (wait: Wait) => wait.attempt ?? 1;

/** How many attempts at this step have failed without an event: the store keeps those. */
export const keptFailures = (wait: Wait) => Math.max(0, attemptOf(wait) - 1 - (wait.earlier_failures ?? 0));

/** How many attempts of a lane have begun. The one that comes next has not. */
export function attemptsBegun(lane: Lane): number {
  const wait = lane.attempts.at(-1)?.wait;
  const last = wait?.kind === 'activity' ? keptFailures(wait) + (isUnderWay(wait) || wait.stage === 'finished' ? 1 : 0) : 1;
  return lane.attempts.length - 1 + last;
}

/** What a step is called in a list. */
export const kindWord: Record<Kind, string> = {
  activity: 'activity',
  timer: 'timer',
  signal: 'signal',
  queue: 'queue',
  child: 'child',
  detached: 'detached start',
  value: 'value',
  status: 'set',
  life: 'orchestration',
};
