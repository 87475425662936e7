// What the tree knows of a family without opening its branches: who has children, and below whom something failed.
import { get, type InstanceRow } from './api';

export type Family = {
  /** All who have children; null if the family is too large to be read at once, so that only opening a branch tells. */
  parents: Set<string> | null;
  /** How many descendants of an instance are failed or blocked. */
  troubles: Map<string, number>;
  /** There are more than were counted; of the root, of whom the store counts many more. */
  isMore: boolean;
  isMoreAtRoot: boolean;
};

/** A family of so many is read at once. */
const AT_ONCE = 200;
/** So many descendants in trouble are followed up to the root. */
const FOLLOWED = 50;
/** So many of those have parents of whom the tree knows nothing yet. */
const LOOKED_UP = 20;

/** Reads it in two requests, and one more for each of a few failures that lie far below. */
export async function readFamily(root: InstanceRow, path: InstanceRow[]): Promise<Family> {
  const [oldest, bad] = await Promise.all([
    get('/api/v1/instances', { root: root.id, limit: AT_ONCE, order: 'oldest' }),
    get('/api/v1/instances', { root: root.id, state: 'failed,blocked', limit: FOLLOWED, count: true }),
  ]);
  const known = new Map<string, string | null>();
  const note = (rows: InstanceRow[]) => rows.forEach((row) => known.set(row.id, row.parent ?? null));
  note([...path, ...oldest.instances, ...bad.instances]);
  const troubles = new Map<string, number>();
  let isMore = Boolean(bad.next);
  let lookUps = 0;
  for (const row of bad.instances) {
    const above = new Set<string>();
    for (let at = row.parent; at && !above.has(at); at = known.get(at)) {
      above.add(at);
      if (known.has(at)) continue;
      if ((lookUps += 1) > LOOKED_UP) {
        isMore = true;
        break;
      }
      note((await get('/api/v1/instance/ancestors', { id: row.id })).instances);
    }
    above.add(root.id);
    above.delete(row.id);
    for (const id of above) troubles.set(id, (troubles.get(id) ?? 0) + 1);
  }
  if (bad.count && bad.count.count > bad.instances.length) troubles.set(root.id, bad.count.count);
  const parents = new Set(oldest.instances.map((row) => row.parent).filter((id) => id !== null && id !== undefined));
  return { parents: oldest.next ? null : parents, troubles, isMore, isMoreAtRoot: bad.count?.is_more ?? isMore };
}
