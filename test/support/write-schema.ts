import { writeSchema } from './schema.ts';

await writeSchema();
